// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: adds and removes companions; keeps the state of nodes and
// workers.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "control/elastic_spec.h"
#include "core/count_of.h"
#include "launcher/generation_machine.h"

namespace swell::launcher {

using control::JobState;

void GenerationMachine::on(double now, const control::Grow& grow) {
  const std::string& pause = growth_.pause_reason();
  if (is<Over>() || is<Ending>() || is_failing() || !pause.empty()) {
    const std::string why = pause.empty() ? kEnds : pause;
    control::GrowDone done;
    for (const control::Offer& offer : grow.offers) done.results.push_back({offer.nonce, 0, why});
    return out_.add(action::Tell{std::move(done)});
  }
  if (offered_.under_way++ == 0) offered_.since = now;
  offered_.ever = true;
  devices_apart_ = devices_apart_ || grow.devices_apart;
  want(grow.plan);
  if (!grow.reason.empty()) out_.say("GPUs are offered: " + grow.reason);
  out_.add(action::Allocate{grow});
  if (is<Running>() || run_.generation < 0) set_state(JobState::warming);
}

void GenerationMachine::on(double now, const event::Allocated& allocated) {
  offered_.under_way = std::max(0, offered_.under_way - 1);
  control::GrowDone done;
  for (const Granted& result : allocated.results)
    done.results.push_back({result.nonce, result.job, result.reason});
  out_.add(action::Tell{std::move(done)});
  for (const Granted& result : allocated.results) {
    if (result.job == 0) {
      out_.note("companion-refused", Json::object({{"reason", result.reason}}));
      if (growth_.is_new_refusal(result.reason))
        out_.say("GPUs were offered, but Slurm refused them: " + result.reason);
      continue;
    }
    HeldCompanion& made = run_.companions.add(result.job, result.nodes);
    made.up_by = now + settings_.warm_timeout_s;
    made.grown_by = grown_by();
    out_.note("companion-allocated", Json::object({{"companion", result.job}}));
    if (is<Over>() || is<Ending>()) reclaim(now, made, kEnds);
    else if (now < made.grown_by) out_.add(action::StartStep{made.job, made.nodes});
  }
  if (!is_warming() && state_ == JobState::warming)
    set_state(run_.generation < 0 ? JobState::allocated : JobState::active);
  advance(now);  // the first generation may have waited for them
}

/// Returns whether GPUs that were offered are on the way.
bool GenerationMachine::is_warming() const {
  return offered_.under_way > 0 ||
         std::any_of(run_.companions.held().begin(), run_.companions.held().end(),
                     [](const HeldCompanion& each) { return !each.up; });
}

void GenerationMachine::on(double now, const control::Shrink& shrink) {
  bool running_ones = false, some_go = false;
  for (const JobId job : shrink.companions) {
    HeldCompanion* found = run_.companions.find(job);
    if (found == nullptr) {
      if (!run_.companions.is_releasing(job))
        out_.add(action::Tell{control::Released{job, "this agent does not hold it"}});
      continue;
    }
    const double by = now + std::min(settings_.restart_timeout_s,
                                     std::max(0.0, shrink.deadline_s - settings_.margin_s));
    found->leave_by = found->reclaimed ? std::min(found->leave_by, by) : by;
    if (!found->reclaimed) {
      out_.say(
          fmt::format("giving back {} (job {}): {}", describe(found->nodes), job, shrink.reason));
      reclaim(now, *found, shrink.reason);
    }
    running_ones =
        running_ones || run_.companions.find(job) != nullptr;  // it still has workers that run
    some_go = true;
  }
  want(shrink.plan);
  if (running_ones || (some_go && is_ending_by_itself())) {
    const double by = now + std::min(settings_.restart_timeout_s,
                                     std::max(0.0, shrink.deadline_s - settings_.margin_s));
    if (LiveSwitch* one = in<LiveSwitch>()) one->make_way(by);
    else if (!is<Ending>() && !is<Over>()) leave_for_reclaim(now, by);
  }
  advance(now);
}

void GenerationMachine::reclaim(double now, HeldCompanion& companion, const std::string& reason) {
  companion.reclaimed = true;
  companion.reason = reason;
  const double by = companion.leave_by;
  if (release_if_left(companion.job) && is_live() && !run_.all_train()) ends_with_others(now, by);
}

void GenerationMachine::lose(double now, JobId job, const std::string& why) {
  HeldCompanion* found = run_.companions.find(job);
  if (found == nullptr) return;
  // The loss of a companion that goes back matters only while training uses it: in live mode, or
  // while workers end by themselves. The others may be near their end, and keep their time.
  if (found->reclaimed && !(is<Running>() && run_.takes_part(*found))) return;
  if (found->reclaimed && !is_live()) {
    out_.say(fmt::format("lost job {} ({}) before the training's end: {}", job,
                         describe(found->nodes), why));
    return begin_restart(now, Purpose::give_back, found->leave_by);
  }
  const bool in_generation =
      run_.workers.train_on(found->nodes) || run_.takes_part(*found) ||
      (is_failing() && run_.companions.of_node(in<Running>()->failure->worker.node) == found);
  const std::vector<WorkerNode> nodes = found->nodes;
  out_.note("companion-lost", Json::object({{"companion", job}, {"reason", why}}));
  out_.say(fmt::format("lost job {} ({}): {}", job, describe(nodes), why));
  found->failed = !found->reclaimed && !found->ends_early;
  // Its other workers may still run; they are killed with the rest of the generation.
  reclaim(now, *found, found->reclaimed ? std::string(found->reason) : why);
  if (Restart* restart = in<Restart>(); restart != nullptr && in_generation) restart->must_leave();
  if (!in_generation || !is<Running>()) return;
  if (restarts_too_often(now)) {
    const std::string count =
        fmt::format("{} restarts within {:.0f} s", restarts_.size(), settings_.restart_window_s);
    restarts_.clear();
    return fall_back(now, count);
  }
  phase_ = Restart({run_.generation, run_.last_generation + 1, Purpose::give_back, now,
                    now + settings_.end_timeout_s});
  kill_running(now);
  set_state(JobState::draining);
}

/// Goes on over the basic demand alone, from the last checkpoint.
void GenerationMachine::fall_back(double now, const std::string& why) {
  recovery_.reset();
  pause_growth(now, why);
  out_.say(why + ": on with the job's own GPUs, from the last checkpoint");
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job); each != nullptr && !each->reclaimed)
      reclaim(now, *each, why);
  restart_killed(now, Purpose::retry, now);
}

void GenerationMachine::on(double, const event::CanRunWith& can) {
  std::vector<int> sizes;
  for (const int each : can.workers)
    if (each <= control::kMaxGpus / settings_.gpus_per_worker)
      sizes.push_back(each * settings_.gpus_per_worker);
  const bool is_news = planner_.set_program_sizes(std::move(sizes));
  if (!growth_.declined(can.why) && !is_news) return;
  growth_.told(no_growth());
  out_.add(action::Tell{status()});
}

/// Returns why a companion goes back after its wait although no job needs it: it cannot join, or it
/// was offered before the program had said on how many GPUs it runs. Empty: it stays.
std::string GenerationMachine::why_useless(const HeldCompanion& companion) const {
  if (!companion.up || companion.reclaimed) return {};
  if (std::string why = no_growth(); !why.empty()) return run_.takes_part(companion) ? "" : why;
  if (!is<Running>() || is_failing() || is_warming() || !run_.workers.others().empty()) return {};
  const RankAssignment next = planner_.next(run_);
  if (has_seat(next, companion)) return {};
  int there = 0;
  for (const WorkerNode& node : run_.companions.usable()) there += node.gpus;
  return fmt::format("the program can use {} of {}",
                     next.seats.size() * static_cast<std::size_t>(settings_.gpus_per_worker),
                     count_of(there, "GPU"));
}

void GenerationMachine::give_back(double now, HeldCompanion& companion, const std::string& why) {
  out_.say(
      fmt::format("giving back {} (job {}): {}", describe(companion.nodes), companion.job, why));
  const bool has_workers = run_.workers.train_on(companion.nodes);
  companion.leave_by = now + settings_.restart_timeout_s;
  const double by = companion.leave_by;
  reclaim(now, companion, why);
  if (has_workers && is<Running>()) leave_for_reclaim(now, by);
}

bool GenerationMachine::release_if_left(JobId job) {
  HeldCompanion* found = run_.companions.find(job);
  if (found == nullptr || !found->reclaimed || run_.workers.run_on(found->nodes)) return false;
  run_.workers.forget(found->nodes);
  run_.companions.release(job);
  out_.add(action::Release{job});
  return true;
}

void GenerationMachine::on(double, const event::Released& released) {
  const JobId job = released.companion;
  const auto gone = run_.companions.released(job);
  if (!gone) return;
  out_.note("companion-released", Json::object({{"companion", job}, {"reason", gone->reason}}));
  out_.add(action::Tell{
      control::Released{job, gone->reason, gone->failed, gone->failed && gone->started}});
}

/// Returns whether a restart would bring in workers, and no worker that is still starting should be
/// waited for.
bool GenerationMachine::joiners_wait() const {
  if (offered_.under_way > 0 || !no_growth().empty() || run_.waits_for_stragglers()) return false;
  return !run_.covers(planner_.next(run_));
}

/// Takes the plan that comes with the controller's order.
void GenerationMachine::want(const Json& json) {
  if (const std::string why = planner_.want(json); !why.empty())
    out_.say("the plan of the controller cannot be read: " + why);
}

void GenerationMachine::drop_unfit_plan(const RankAssignment& next) {
  const std::string why = planner_.drop_unfit(next, run_);
  if (why.empty()) return;
  out_.say("the plan of the controller is not run: " + why);
  out_.note("plan-dropped", Json::object({{"reason", why}}));
}

control::Status GenerationMachine::status() const {
  control::Status status;
  status.state = state_;
  status.generation = std::max(0, run_.generation);
  status.workers = static_cast<int>(run_.assignment.seats.size());
  status.stopped_s = stopped_s_;
  status.no_growth = no_growth();
  status.switched = switched_;
  status.sizes = planner_.program_sizes();
  status.plan_refused = planner_.refused();
  status.start_s = pace_.start_s();
  status.requeue_order = requeue_.order;
  status.has_left = is<Gathering>() && in<Gathering>()->requeued_by.has_value();
  status.not_requeued = not_requeued_;
  return status;
}

void GenerationMachine::set_state(JobState state) {
  state_ = state;
  growth_.told(no_growth());
  out_.add(action::Tell{status()});
}

}  // namespace swell::launcher
