// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the agent: one function for each kind of action.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "launcher/agent.h"
#include "launcher/companion_check.h"
#include "launcher/launch_again.h"
#include "launcher/signals.h"
#include "launcher/slurm_env.h"
#include "launcher/switch_network.h"

namespace swell::launcher {

namespace {

constexpr double kStepEnd_s = 1;  // an orderly end is quieter than a cancelled step
constexpr double kFinish_s = 15;
constexpr double kProlog_s = 300;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_in(const action::Note& note, const char* part) {
  const auto seconds = note.details.number_at(part, 0, 1e9);
  return seconds ? *seconds : 0;
}

/// The step behind which the old programs of a switch stopped.
std::uint64_t step_in(const action::Note& note) {
  const auto step = note.details.integer_at("step", 0, std::numeric_limits<std::int64_t>::max());
  return step ? static_cast<std::uint64_t>(*step) : 0;
}

/// For the history: nothing where training did not stand still.
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
  const bool companion = start.job != setup_.hello.job;
  for (const WorkerNode& node : start.nodes) {
    node_job_[node.id] = start.job;
    nodes_[node.id] = node;
  }
  const ShimAddress shim{setup_.shim,
                         address_,
                         server_->port(),
                         setup_.shim_munge_socket,
                         setup_.input->spooled.has_value(),
                         driver_ != nullptr,
                         setup_.loader};
  bool foreground = !companion;
  const double wait_s = companion ? 0 : knows_nodes_in(setup_.slurmctld_since, std::time(nullptr));
  for (Command& command :
       step_commands(setup_.options, start.job, names_, start.nodes, setup_.basic.cpus_per_worker,
                     setup_.basic.shares_cpus, shim)) {
    Step step{start.job, std::move(command), std::exchange(foreground, false)};
    if (wait_s > 0) launches_.emplace_back(now() + wait_s, std::move(step));
    else launch(std::move(step));
  }
}

void Agent::launch(Step step) {
  const bool companion = step.job != setup_.hello.job;
  auto environment = companion ? companion_step_environment(environ) : step_environment(environ);
  environment.push_back("SWELL_AGENT=1");  // spank_swell: no hint that srun lends nothing
  const SpooledInput* input = setup_.input->spooled ? &*setup_.input->spooled : nullptr;
  const Result<pid_t> pid =
      children_.start(step.command, environment, {.foreground = step.foreground, .input = input});
  if (pid) {
    steps_[*pid] = std::move(step);
    return;
  }
  say(pid.error().message());
  machine_.step_ended(now(), step.job, {127, 0});
}

/// Whether the job's own step may be launched again: before the first program, nobody has missed
/// anything yet. A companion's GPUs go back instead.
bool Agent::may_launch_again(const Step& step) const {
  if (step.job != setup_.hello.job || machine_.has_begun() || code_) return false;
  // Input that srun has read for a program that did not begin is lost, unless it is kept: /dev/null
  // and a terminal have more.
  struct stat input {};
  return !step.foreground || setup_.input->spooled || fstat(STDIN_FILENO, &input) != 0 ||
         S_ISCHR(input.st_mode);
}

/// Whether this srun is run again, in a while, or may be: a slurmd or slurmctld was away as it
/// launched.
bool Agent::launches_again(const Step& step, const Exit& exit) {
  const auto pause_s = launch_again_in(step.launches);
  if (!pause_s || !may_launch_again(step)) return false;
  if (!slurmd_was_lost(exit)) return asks_for_slurmctld(step, exit);
  launch_later(step, exit, "a node's slurmd did not answer", *pause_s);
  return true;
}

/// An error of srun's own, such as a bad option, is not fixed by another launch, unless slurmctld
/// was away.
bool Agent::asks_for_slurmctld(const Step& step, const Exit& exit) {
  if (!srun_failed(exit, std::getenv("SLURM_EXIT_ERROR"))) return false;
  const auto pid = children_.start({"scontrol", "show", "config"}, outside_environment(environ),
                                   {.capture = true});
  if (pid) failed_.emplace(*pid, Failed{step, exit});
  return pid.ok();
}

void Agent::answered(const Failed& failed, const Children::Ended& config) {
  if (code_) return;
  const auto seen = read_config(config.output);
  const bool was_away =
      config.exit.status() != 0 || !seen || slurmctld_was_away(seen->slurmctld_since, began_);
  const auto pause_s = launch_again_in(failed.step.launches);
  if (!was_away || !pause_s || !may_launch_again(failed.step))
    return machine_.step_ended(now(), failed.step.job, failed.exit);
  const double known_s = seen ? knows_nodes_in(seen->slurmctld_since, std::time(nullptr)) : 0;
  launch_later(failed.step, failed.exit, "slurmctld was away", std::max(*pause_s, known_s));
}

void Agent::launch_later(Step step, const Exit& exit, const char* why, double pause_s) {
  say(fmt::format("srun ended with {}: {}; its workers are launched again in {:g} s", exit.status(),
                  why, pause_s));
  step.launches += 1;
  launches_.emplace_back(now() + pause_s, std::move(step));
}

void Agent::carry_out(const action::StartWorkers& start) {
  for (const auto& [worker, environment] : start.workers) {
    const auto found = connections_.find(worker);
    if (found == connections_.end()) continue;
    control::WorkerStart message{start.generation,       setup_.options.restart_signal,
                                 start.live ? key_ : "", ports_of(worker),
                                 job_environment_,       start.none_is_new};
    message.environment.insert(message.environment.end(), environment.begin(), environment.end());
    server_->send(found->second, std::move(message));
  }
}

std::string Agent::ports_of(WorkerId worker) const {
  const WorkerNode& node = nodes_.at(worker.node);
  const auto its = descriptions_.find(node.name);
  if (its == descriptions_.end()) return "";
  return ports_near(its->second, gpus_of(node, worker.local, setup_.basic.gpus_per_worker));
}

void Agent::carry_out(const action::SignalWorkers& signal) {
  for (const WorkerId worker : signal.workers)
    if (const auto found = connections_.find(worker); found != connections_.end())
      server_->send(found->second, control::WorkerSignal{signal.generation, signal.signal});
}

void Agent::carry_out(const action::Allocate& allocate) {
  Request request;
  request.offers = allocate.grow.offers;
  request.expires = now() + std::max(1, allocate.grow.expires_s);
  const auto environment = outside_environment(environ);
  const int warning = driver_ != nullptr ? kQuietSignal : setup_.options.restart_signal;
  for (std::size_t i = 0; i < request.offers.size(); ++i) {
    Granted& result = request.results.emplace_back();
    result.nonce = request.offers[i].nonce;
    const Result<pid_t> pid =
        children_.start(salloc_command(request.offers[i], warning), environment, {.capture = true});
    if (!pid) {
      result.reason = pid.error().message();
      continue;
    }
    request.sallocs[*pid] = i;
    ++request.open;
  }
  requests_.push_back(std::move(request));
  request_done(requests_.size() - 1);
}

bool Agent::ended_salloc(const Children::Ended& ended) {
  for (std::size_t index = 0; index < requests_.size(); ++index) {
    Request& request = requests_[index];
    if (const auto salloc = request.sallocs.find(ended.pid); salloc != request.sallocs.end()) {
      const std::size_t offer = salloc->second;
      request.sallocs.erase(salloc);
      Granted& result = request.results[offer];
      const JobId job = granted_job(ended.output);
      if (job != 0 && ended.exit.status() == 0) {
        result.job = job;
        // Which GPUs they are, is only known now.
        const auto pid = children_.start({"scontrol", "-d", "show", "job", std::to_string(job)},
                                         outside_environment(environ), {.capture = true});
        if (pid) {
          request.shows[*pid] = offer;
          return true;
        }
      } else {
        result.reason = refusal(ended.output);
        // Granted, but ended by us as it took too long: salloc has given it up, or this does.
        if (job != 0) cancel_unused(request.offers[offer].name, job);
      }
    } else if (const auto show = request.shows.find(ended.pid); show != request.shows.end()) {
      const std::size_t offer = show->second;
      request.shows.erase(show);
      Granted& result = request.results[offer];
      if (const Result<void> good =
              check_companion(ended.output, result.job, setup_.hello.job, request.offers[offer]);
          !good) {
        give_up(shown_name(ended.output, result.job, request.offers[offer].name), result,
                good.error().message());
        --request.open;
        request_done(index);
        return true;
      }
      if (const auto shares = read_job(ended.output, request.results[offer].job,
                                       {{"JobName", request.offers[offer].name}});
          shares && shares->size() == 1) {
        WorkerNode node;
        node.name = shares->front().node;
        node.cpus = shares->front().cpus;
        node.gpus = shares->front().gpus;
        node.gpu_list = shares->front().gpu_list;
        request.results[offer].nodes.push_back(std::move(node));
      }
      // And which cards they are near to.
      const std::string& node = request.offers[offer].node;
      if (setup_.wants_ports && !descriptions_.contains(node)) {
        const auto pid = children_.start({"scontrol", "show", "node", node},
                                         outside_environment(environ), {.capture = true});
        if (pid) {
          request.node_shows.insert(*pid);
          return true;
        }
      }
    } else if (request.node_shows.erase(ended.pid) > 0) {
      descriptions_.merge(read_descriptions(ended.output));
    } else {
      continue;
    }
    --request.open;
    request_done(index);
    return true;
  }
  return false;
}

void Agent::cancel_unused(const std::string& name, JobId companion) {
  static_cast<void>(children_.start(cancel_command(name, companion), outside_environment(environ),
                                    {.capture = true}));
}

/// Cancels a companion that Slurm has granted, before it is used; `result` says why.
void Agent::give_up(const std::string& name, Granted& result, std::string why) {
  cancel_unused(name, result.job);
  result.job = 0;
  result.reason = std::move(why);
}

/// Ends what an offer has not become by its expiry. A companion that Slurm has granted, whose node
/// still runs its Prolog, becomes a request of its own that may take kProlog_s longer.
void Agent::expire_requests(double time) {
  std::vector<Request> slow_ones;
  for (std::size_t index = requests_.size(); index-- > 0;) {
    Request& request = requests_[index];
    if (request.open == 0 || time < request.expires) continue;
    request.expires = time + 5;
    for (const pid_t pid : request.node_shows) children_.signal(pid, SIGKILL);
    for (const auto& [pid, offer] : request.shows) children_.signal(pid, SIGKILL);
    for (auto each = request.sallocs.begin(); each != request.sallocs.end();) {
      const auto [pid, offer] = *each;
      const JobId granted = granted_job(children_.output_so_far(pid));
      if (granted == 0 || request.is_slow) children_.signal(pid, SIGTERM);
      if (granted == 0) {
        ++each;
        continue;
      }
      Granted& result = request.results[offer];
      if (request.is_slow) {
        result.job = granted;
        give_up(request.offers[offer].name, result,
                fmt::format("its node was not ready within {:g} s of Slurm's grant (Prolog)",
                            kProlog_s));
      } else {
        Request slow;
        slow.offers = {request.offers[offer]};
        slow.results = {result};
        slow.sallocs[pid] = 0;
        slow.open = 1;
        slow.expires = time + kProlog_s;
        slow.is_slow = true;
        slow_ones.push_back(std::move(slow));
        request.moved.insert(offer);
      }
      each = request.sallocs.erase(each);
      --request.open;
    }
    request_done(index);
  }
  std::move(slow_ones.begin(), slow_ones.end(), std::back_inserter(requests_));
}

void Agent::request_done(std::size_t index) {
  if (requests_[index].open > 0) return;
  Request request = std::move(requests_[index]);
  requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::size_t i = 0; i < request.results.size(); ++i) {
    Granted& result = request.results[i];
    if (result.job == 0) continue;
    const control::Offer& offer = request.offers[i];
    // A slurmctld that was killed gives the ids of its last seconds anew. Two companions of one id
    // could not be told apart here: this one goes back, the next offer gets an id of its own.
    if (!companion_names_.emplace(result.job, offer.name).second) {
      give_up(offer.name, result, "Slurm gave it the id of a companion that it has forgotten");
      continue;
    }
    if (result.nodes.empty() || result.nodes.front().gpus == 0) {
      WorkerNode node;
      node.name = offer.node;
      node.cpus = offer.cpus;
      node.gpus = offer.gpus;
      result.nodes = {node};
    }
    WorkerNode& node = result.nodes.front();
    node.workers = std::min(offer.workers, node.gpus / setup_.basic.gpus_per_worker);
  }
  std::vector<Granted> results;
  for (std::size_t i = 0; i < request.results.size(); ++i)
    if (!request.moved.contains(i)) results.push_back(std::move(request.results[i]));
  machine_.allocated(now(), results);
}

void Agent::carry_out(const action::Release& release) {
  leaving_[release.job].cancel_by = now() + kStepEnd_s;
  for (auto each = connections_.begin(); each != connections_.end();) {
    if (node_job_[each->first.node] != release.job) {
      ++each;
      continue;
    }
    server_->close(each->second);
    workers_.erase(each->second);
    keepers_.erase(each->first);
    each = connections_.erase(each);
  }
  if (!step_runs(release.job)) cancel(release.job);
}

void Agent::cancel(JobId companion) {
  Leaving& leaving = leaving_[companion];
  if (leaving.cancelling) return;
  leaving.cancelling = true;
  const auto pid = children_.start(cancel_command(companion_names_[companion], companion),
                                   outside_environment(environ), {.capture = true});
  if (pid) {
    cancels_[*pid] = companion;
  } else {
    leaving_.erase(companion);
    machine_.released(now(), companion);
  }
}

void Agent::carry_out(const action::Tell& tell) { this->tell(tell.message); }
void Agent::carry_out(const action::Say& line) { say(line.line); }

void Agent::carry_out(const action::Note& note) {
  if (auto switched = switched_in(note)) {
    const double took_s =
        switched->stopped_s + seconds_in(note, "prepare_s") + seconds_in(note, "wait_s");
    lost_.changed(now() - took_s, switched->generation,
                  switched->mode == "live" ? step_in(note) : 0);
    tell(std::move(*switched));
  }
  if (!events_.is_open()) return;
  const double time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Json line = Json::object(
      {{"time", std::floor(time * 1000) / 1000}, {"event", note.event}, {"job", setup_.hello.job}});
  for (const auto& [key, value] : note.details.members()) line.set(key.c_str(), value);
  events_ << line.dump_ascii() << '\n' << std::flush;
}

void Agent::carry_out(const action::Finish& finish) {
  code_ = finish.code;
  requeues_ = finish.for_requeue && setup_.options.requeue;
  finish_by_ = now() + kFinish_s;
  for (const auto& [worker, connection] : connections_) server_->close(connection);
  connections_.clear();
  workers_.clear();
}

}  // namespace swell::launcher
