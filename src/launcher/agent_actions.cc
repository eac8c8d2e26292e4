// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the agent: one function for each kind of action.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <unistd.h>
#include <utility>

#include "launcher/agent.h"
#include "launcher/slurm_env.h"
#include "launcher/switch_network.h"

namespace swell::launcher {

namespace {

constexpr double kFinish_s = 15;
constexpr double kRequeue_s = 20;  // time limit of scontrol

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_in(const action::Note& note, const char* part) {
  const auto seconds = note.details.number_at(part, 0, 1e9);
  return seconds ? *seconds : 0;
}

/// Returns the step after which the old programs of a switch stopped; 0: not known.
std::uint64_t step_in(const action::Note& note) {
  const auto step = note.details.integer_at("step", 0, std::numeric_limits<std::int64_t>::max());
  return step ? static_cast<std::uint64_t>(*step) : 0;
}

/// Returns the entry for the history; nullopt if training did not stand still.
std::optional<control::Switched> switched_in(const action::Note& note) {
  const bool is_live = note.event == "switch-committed";
  const auto stopped = note.details.number_at("stopped_s", 0, 1e9);
  if ((!is_live && note.event != "resumed") || !stopped || (!is_live && *stopped <= 0))
    return std::nullopt;
  control::Switched switched;
  switched.mode = is_live ? "live" : "restart";
  switched.stopped_s = *stopped;
  if (const auto generation = note.details.integer_at("generation", 0, 1'000'000'000))
    switched.generation = static_cast<int>(*generation);
  if (const auto workers = note.details.integer_at("workers", 0, 1'000'000'000))
    switched.workers = static_cast<int>(*workers);
  if (!is_live) return switched;
  switched.parts = Json::object();
  for (const char* part : {"prepare_s", "wait_s", "quiesce_s", "move_s", "commit_s", "bytes"})
    switched.parts.set(part, note.details.at(part));
  return switched;
}

}  // namespace

void Agent::carry_out(const action::StartStep& start) {
  workers_.add_nodes(start.nodes);
  const ShimAddress shim{setup_.shim,
                         address_,
                         server_->port(),
                         setup_.shim_munge_socket,
                         setup_.input->spooled.has_value(),
                         live_ != nullptr,
                         setup_.loader};
  steps_.start(start.job,
               step_commands(setup_.options, start.job, names_, start.nodes,
                             setup_.basic.cpus_per_worker, setup_.basic.shares_cpus, shim),
               now());
}

void Agent::carry_out(const action::StartWorkers& start) {
  for (const auto& [worker, environment] : start.workers) {
    const auto connection = workers_.connection(worker);
    if (!connection) continue;
    control::WorkerStart message{start.generation,
                                 setup_.options.restart_signal,
                                 start.live && live_ ? live_->key() : "",
                                 ports_of(worker),
                                 job_environment_,
                                 start.none_is_new};
    message.environment.insert(message.environment.end(), environment.begin(), environment.end());
    server_->send(*connection, std::move(message));
  }
}

std::string Agent::ports_of(WorkerId worker) const {
  const WorkerNode& node = workers_.node(worker.node);
  const auto its = descriptions_.find(node.name);
  if (its == descriptions_.end()) return "";
  return ports_near(its->second, gpus_of(node, worker.local, setup_.basic.gpus_per_worker));
}

void Agent::carry_out(const action::SignalWorkers& signal) {
  for (const WorkerId worker : signal.workers)
    if (const auto connection = workers_.connection(worker))
      server_->send(*connection, control::WorkerSignal{signal.generation, signal.signal});
}

void Agent::carry_out(const action::Allocate& allocate) { requests_.begin(allocate.grow, now()); }

void Agent::carry_out(const action::Release& release) {
  for (const auto& [worker, connection] : workers_.disconnect_job(release.job)) {
    server_->close(connection);
    if (live_) live_->lost(worker);
  }
  leaving_.release(release.job, steps_.runs(release.job), now());
}

void Agent::carry_out(const action::BeginLive& begin) {
  if (live_) live_->begin(begin);
}

void Agent::carry_out(const action::SwitchLive& order) {
  if (live_) live_->change(order);
}

void Agent::carry_out(const action::StopLive& stop) {
  if (live_) live_->stop(stop);
  else machine_.handle(now(), event::Stopped{stop.generation, 0, stop.workers});
}

void Agent::carry_out(const action::CallOffLive&) {
  if (live_) live_->call_off();
}

void Agent::carry_out(const action::Tell& tell) { this->tell(tell.message); }
void Agent::carry_out(const action::Say& line) { say(line.line); }

void Agent::carry_out(const action::Note& note) {
  if (auto switched = switched_in(note)) {
    const double took_s =
        switched->stopped_s + seconds_in(note, "prepare_s") + seconds_in(note, "wait_s");
    step_reports_.changed(now() - took_s, switched->generation,
                          switched->mode == "live" ? step_in(note) : 0);
    tell(std::move(*switched));
  }
  if (!events_.is_open()) return;
  const double time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Json line = Json::object(
      {{"time", std::floor(time * 1000) / 1000}, {"event", note.event}, {"job", setup_.hello.job}});
  for (const auto& [key, value] : members(note.details)) line.set(key.c_str(), value);
  events_ << ascii_text(line) << '\n' << std::flush;
}

void Agent::carry_out(const action::Finish& finish) {
  ending_.code = finish.code;
  ending_.requeues = finish.for_requeue && setup_.options.requeue;
  ending_.by = now() + kFinish_s;
  steps_.stop();
  for (const auto connection : workers_.disconnect_all()) server_->close(connection);
}

/// Slurm may end this process before it returns.
void Agent::requeue() const {
  const auto done = Children::output_of({"scontrol", "requeue", std::to_string(setup_.hello.job)},
                                        outside_environment(environ), kRequeue_s);
  if (!done) say("the job is not requeued: " + done.error().message());
}

}  // namespace swell::launcher
