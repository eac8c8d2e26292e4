// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the epoch machine: adds and removes companions; keeps the state of nodes and workers.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "control/elastic_spec.h"
#include "core/count_of.h"
#include "launcher/epoch_machine.h"
#include "launcher/plan_assignment.h"

namespace swell::launcher {

using control::JobState;

void EpochMachine::grow(double now, const control::Grow& grow) {
  const std::string& pause = growth_.pause_reason();
  if (is<Over>() || is<Ending>() || is_failing() || !pause.empty()) {
    const std::string why = pause.empty() ? kEnds : pause;
    control::GrowDone done;
    for (const control::Offer& offer : grow.offers) done.results.push_back({offer.nonce, 0, why});
    return act(action::Tell{std::move(done)});
  }
  if (offered_.under_way++ == 0) offered_.since = now;
  offered_.ever = true;
  devices_apart_ = devices_apart_ || grow.devices_apart;
  want(grow.plan);
  if (!grow.reason.empty()) say("GPUs are offered: " + grow.reason);
  act(action::Allocate{grow});
  if (is<Running>() || epoch_ < 0) set_state(JobState::warming);
}

void EpochMachine::allocated(double now, const std::vector<Granted>& results) {
  offered_.under_way = std::max(0, offered_.under_way - 1);
  control::GrowDone done;
  for (const Granted& result : results)
    done.results.push_back({result.nonce, result.job, result.reason});
  act(action::Tell{std::move(done)});
  for (const Granted& result : results) {
    if (result.job == 0) {
      note("companion-refused", Json::object({{"reason", result.reason}}));
      if (growth_.is_new_refusal(result.reason))
        say("GPUs were offered, but Slurm refused them: " + result.reason);
      continue;
    }
    HeldCompanion made;
    made.job = result.job;
    made.up_by = now + settings_.warm_timeout_s;
    made.grown_by = grown_by();
    made.nodes = result.nodes;
    for (WorkerNode& node : made.nodes) {
      node.id = next_node_++;
      node.job = result.job;
    }
    companions_.push_back(made);
    note("companion-allocated", Json::object({{"companion", result.job}}));
    if (is<Over>() || is<Ending>()) reclaim(now, companions_.back(), kEnds);
    else if (now < made.grown_by) act(action::StartStep{made.job, made.nodes});
  }
  if (!is_warming() && state_ == JobState::warming)
    set_state(epoch_ < 0 ? JobState::allocated : JobState::active);
  advance(now);  // the first epoch may have waited for them
}

/// Whether GPUs that were offered are on the way.
bool EpochMachine::is_warming() const {
  return offered_.under_way > 0 || std::any_of(companions_.begin(), companions_.end(),
                                               [](const HeldCompanion& each) { return !each.up; });
}

void EpochMachine::shrink(double now, const control::Shrink& shrink) {
  bool running_ones = false, some_go = false;
  for (const JobId job : shrink.companions) {
    HeldCompanion* found = companion(job);
    if (found == nullptr) {
      if (!releasing_.contains(job))
        act(action::Tell{control::Released{job, "this agent does not hold it"}});
      continue;
    }
    const double by = now + std::min(settings_.restart_timeout_s,
                                     std::max(0.0, shrink.deadline_s - settings_.margin_s));
    found->leave_by = found->reclaimed ? std::min(found->leave_by, by) : by;
    if (!found->reclaimed) {
      say(fmt::format("giving back {} (job {}): {}", describe(found->nodes), job, shrink.reason));
      reclaim(now, *found, shrink.reason);
    }
    running_ones = running_ones || companion(job) != nullptr;  // it still has workers that run
    some_go = true;
  }
  want(shrink.plan);
  if (running_ones || (some_go && is_ending_by_itself())) {
    const double by = now + std::min(settings_.restart_timeout_s,
                                     std::max(0.0, shrink.deadline_s - settings_.margin_s));
    if (is<Switching>()) make_way(by);
    else if (!is<Ending>() && !is<Over>() && !is_live()) leave_for_reclaim(now, by);
  }
  advance(now);
}

void EpochMachine::reclaim(double now, HeldCompanion& companion, const std::string& reason) {
  companion.reclaimed = true;
  companion.reason = reason;
  const double by = companion.leave_by;
  if (release_if_left(companion.job) && is_live() && !all_train()) ends_with_others(now, by);
}

void EpochMachine::lose(double now, JobId job, const std::string& why) {
  HeldCompanion* found = companion(job);
  if (found == nullptr) return;
  // A returning companion matters if training goes on with it until then: live, or since it is
  // ending by itself, which it cannot now. Others may be at its end, and have their time.
  if (found->reclaimed && !(is<Running>() && takes_part(*found))) return;
  if (found->reclaimed && !is_live()) {
    say(fmt::format("lost job {} ({}) before the training's end: {}", job, describe(found->nodes),
                    why));
    return begin_leaving(now, JobState::draining, found->leave_by);
  }
  const bool in_epoch =
      trains_on(found->nodes) || takes_part(*found) ||
      (is_failing() && companion_of(in<Running>()->failure->worker.node) == found);
  const std::vector<WorkerNode> nodes = found->nodes;
  note("companion-lost", Json::object({{"companion", job}, {"reason", why}}));
  say(fmt::format("lost job {} ({}): {}", job, describe(nodes), why));
  found->failed = !found->reclaimed && !found->ends_early;
  // Its other workers may still run; they are killed with the rest of the epoch.
  reclaim(now, *found, found->reclaimed ? std::string(found->reason) : why);
  if (Leaving* leaving = in<Leaving>(); leaving != nullptr && in_epoch) leaving->before.reset();
  if (!in_epoch || !is<Running>()) return;
  if (restarts_too_often(now)) {
    const std::string count =
        fmt::format("{} restarts within {:.0f} s", restarts_.size(), settings_.restart_window_s);
    restarts_.clear();
    return fall_back(now, count);
  }
  phase_ = Leaving{now + settings_.end_timeout_s, now};
  kill_running(now);
  set_state(JobState::draining);
}

/// On over the basic demand alone, from the last checkpoint.
void EpochMachine::fall_back(double now, const std::string& why) {
  recovery_.reset();
  pause_growth(now, why);
  say(why + ": on with the job's own GPUs, from the last checkpoint");
  for (const JobId job : companions())
    if (HeldCompanion* each = companion(job); each != nullptr && !each->reclaimed)
      reclaim(now, *each, why);
  phase_ = Leaving{now, now, Purpose::retry};
  code_ = 0;
  set_state(JobState::draining);
  kill_running(now);
}

void EpochMachine::can_run_with(const std::vector<int>& workers, const std::string& why) {
  std::vector<int> sizes;
  for (const int each : workers)
    if (each <= control::kMaxGpus / settings_.gpus_per_worker)
      sizes.push_back(each * settings_.gpus_per_worker);
  if (!growth_.declined(why) && sizes == program_sizes_) return;
  program_sizes_ = std::move(sizes);
  growth_.told(no_growth());
  act(action::Tell{status()});
}

bool EpochMachine::takes_part(const HeldCompanion& companion) const {
  return has_seat(assignment_, companion);
}

bool EpochMachine::has_seat(const RankAssignment& assignment, const HeldCompanion& companion) {
  return std::any_of(assignment.seats.begin(), assignment.seats.end(), [&](const Seat& seat) {
    return std::any_of(companion.nodes.begin(), companion.nodes.end(),
                       [&](const WorkerNode& node) { return node.id == seat.worker.node; });
  });
}

/// Why a companion goes back although nobody needs it, once it has waited its time: it cannot join,
/// or it was offered before the program had said on how many GPUs it runs. Empty: it stays.
std::string EpochMachine::why_useless(const HeldCompanion& companion) const {
  if (!companion.up || companion.reclaimed) return {};
  if (std::string why = no_growth(); !why.empty()) return takes_part(companion) ? "" : why;
  if (!is<Running>() || is_failing() || is_warming() || !others_.empty()) return {};
  const RankAssignment next = next_assignment();
  if (has_seat(next, companion)) return {};
  int there = 0;
  for (const WorkerNode& node : usable()) there += node.gpus;
  return fmt::format("the program can use {} of {}",
                     next.seats.size() * static_cast<std::size_t>(settings_.gpus_per_worker),
                     count_of(there, "GPU"));
}

void EpochMachine::give_back(double now, HeldCompanion& companion, const std::string& why) {
  say(fmt::format("giving back {} (job {}): {}", describe(companion.nodes), companion.job, why));
  const bool has_workers = trains_on(companion.nodes);
  companion.leave_by = now + settings_.restart_timeout_s;
  const double by = companion.leave_by;
  reclaim(now, companion, why);
  if (has_workers && is<Running>() && !is_live()) leave_for_reclaim(now, by);
}

bool EpochMachine::release_if_left(JobId job) {
  const auto found = std::find_if(companions_.begin(), companions_.end(),
                                  [job](const HeldCompanion& c) { return c.job == job; });
  if (found == companions_.end() || !found->reclaimed || runs_anything(found->nodes)) return false;
  for (const WorkerNode& node : found->nodes)
    for (int local = 0; local < node.workers; ++local) workers_.erase({node.id, local});
  releasing_.emplace(job, *found);
  companions_.erase(found);
  act(action::Release{job});
  return true;
}

void EpochMachine::released(double, JobId job) {
  const auto found = releasing_.find(job);
  if (found == releasing_.end()) return;
  note("companion-released", Json::object({{"companion", job}, {"reason", found->second.reason}}));
  act(action::Tell{control::Released{job, found->second.reason, found->second.failed}});
  releasing_.erase(found);
}

/// Whether lent GPUs that are up wait for others that are not, so that one growth does for all.
/// The others may never come up, for example if a node's TaskProlog hangs.
bool EpochMachine::waits_for_stragglers() const {
  bool have_stragglers = false, wait = false;
  for (const HeldCompanion& each : companions_) {
    if (each.reclaimed) continue;
    have_stragglers = have_stragglers || !each.up;
    wait = wait || (each.waits_until && !takes_part(each));
  }
  return have_stragglers && wait;
}

/// Whether a restart would bring in workers, and no worker still starting is worth waiting
/// for.
bool EpochMachine::joiners_wait() const {
  if (offered_.under_way > 0 || !no_growth().empty() || waits_for_stragglers()) return false;
  const auto trains = [this](const Seat& next) {
    return std::any_of(assignment_.seats.begin(), assignment_.seats.end(),
                       [&](const Seat& seat) { return seat.worker == next.worker; });
  };
  const RankAssignment next = next_assignment();
  return !std::all_of(next.seats.begin(), next.seats.end(), trains);
}

EpochMachine::HeldCompanion* EpochMachine::companion(JobId job) {
  for (HeldCompanion& each : companions_)
    if (each.job == job) return &each;
  return nullptr;
}

EpochMachine::HeldCompanion* EpochMachine::companion_of(int node_id) {
  for (HeldCompanion& each : companions_)
    for (const WorkerNode& node : each.nodes)
      if (node.id == node_id) return &each;
  return nullptr;
}

bool EpochMachine::is_basic(int node) const {
  return std::any_of(basic_.begin(), basic_.end(),
                     [node](const WorkerNode& each) { return each.id == node; });
}

/// Whether programs of the epoch that trains run there.
bool EpochMachine::trains_on(const std::vector<WorkerNode>& nodes) const {
  for (const auto& [id, worker] : workers_)
    for (const WorkerNode& node : nodes)
      if (id.node == node.id && worker.running) return true;
  return false;
}

/// No worker of the job's own has ended by itself.
bool EpochMachine::basic_train() const {
  return std::all_of(assignment_.seats.begin(), assignment_.seats.end(), [this](const Seat& seat) {
    const auto worker = workers_.find(seat.worker);
    return !is_basic(seat.worker.node) || (worker != workers_.end() && worker->second.running);
  });
}

bool EpochMachine::runs_anything(const std::vector<WorkerNode>& nodes) const {
  if (trains_on(nodes)) return true;
  for (const auto& [program, by] : others_)
    for (const WorkerNode& node : nodes)
      if (program.second.node == node.id) return true;
  return false;
}

std::vector<WorkerId> EpochMachine::running() const {
  std::vector<WorkerId> found;
  for (const auto& [id, worker] : workers_)
    if (worker.running) found.push_back(id);
  return found;
}

std::vector<WorkerNode> EpochMachine::usable() const {
  std::vector<WorkerNode> nodes = basic_;
  for (const HeldCompanion& each : companions_)
    if (each.up && !each.reclaimed) nodes.insert(nodes.end(), each.nodes.begin(), each.nodes.end());
  return nodes;
}

RankAssignment EpochMachine::next_assignment() const {
  int basic = 0, there = 0;
  for (const WorkerNode& node : basic_) basic += node.gpus;
  const std::vector<WorkerNode> nodes = usable();
  for (const WorkerNode& node : nodes) there += node.gpus;
  const int allowed =
      allowed_gpus(there, basic, control::common_sizes(asked_sizes(there), program_sizes_, basic));
  if (wanted_ && (wanted_->gpu_count() == basic || runs_on(wanted_->gpu_count())))
    if (auto assignment = seat_by_plan(*wanted_, nodes, settings_.gpus_per_worker))
      return *assignment;
  // The running plan is still good where no worker comes or goes.
  if (!assignment_.plan.empty())
    if (const auto running = plan::Plan::parse(assignment_.plan); running)
      if (auto assignment = seat_by_plan(*running, nodes, settings_.gpus_per_worker);
          assignment && assignment->idle == assignment_.idle)
        return *assignment;
  return seat_workers(nodes, settings_.gpus_per_worker, allowed);
}

/// The totals up to `limit` that the user asked for; empty: any.
std::vector<int> EpochMachine::asked_sizes(int limit) const {
  control::ElasticSpec spec;
  spec.sizes = settings_.sizes;
  spec.step = settings_.step;
  int basic = 0;
  for (const WorkerNode& node : basic_) basic += node.gpus;
  return spec.totals(basic, limit);
}

/// Whether the program is known to run on so many GPUs in all.
bool EpochMachine::runs_on(int gpus) const {
  const auto allow = [gpus](const std::vector<int>& sizes) {
    return sizes.empty() || std::find(sizes.begin(), sizes.end(), gpus) != sizes.end();
  };
  return allow(asked_sizes(gpus)) && allow(program_sizes_);
}

/// A plan of the controller's for what it has just asked for; without one, the program plans.
void EpochMachine::want(const Json& json) {
  wanted_.reset();
  plan_refused_.clear();
  if (!json.is_object()) return;
  auto plan = plan::Plan::from_json(json);
  if (plan) wanted_ = std::move(*plan);
  else say("the plan of the controller cannot be read: " + plan.error().message());
}

void EpochMachine::drop_unfit_plan(const RankAssignment& next) {
  if (!wanted_ || !next.plan.empty()) return;
  const auto assignment = seat_by_plan(*wanted_, usable(), settings_.gpus_per_worker);
  const std::string why =
      assignment ? "it is not of an allowed size" : assignment.error().message();
  say("the plan of the controller is not run: " + why);
  note("plan-dropped", Json::object({{"reason", why}}));
  plan_refused_ = why;
  wanted_.reset();
}

control::Status EpochMachine::status() const {
  control::Status status;
  status.state = state_;
  status.epoch = std::max(0, epoch_);
  status.workers = static_cast<int>(assignment_.seats.size());
  status.stopped_s = stopped_s_;
  status.no_growth = no_growth();
  status.switched = switched_;
  status.sizes = program_sizes_;
  status.plan_refused = plan_refused_;
  status.start_s = pace_.start_s();
  return status;
}

std::vector<JobId> EpochMachine::companions() const {
  std::vector<JobId> jobs;
  for (const HeldCompanion& each : companions_) jobs.push_back(each.job);
  return jobs;
}

void EpochMachine::set_state(JobState state) {
  state_ = state;
  growth_.told(no_growth());
  act(action::Tell{status()});
}

void EpochMachine::say(std::string line) { act(action::Say{std::move(line)}); }

void EpochMachine::note(const std::string& event, Json details) {
  details.set("epoch", std::max(0, epoch_));
  details.set("workers", static_cast<int>(assignment_.seats.size()));
  Json gpus = Json::array();
  std::vector<WorkerNode> nodes = basic_;
  for (const HeldCompanion& each : companions_)
    nodes.insert(nodes.end(), each.nodes.begin(), each.nodes.end());
  for (const WorkerNode& node : nodes)
    gpus.append(Json::object({{"job", node.job}, {"node", node.name}, {"gpus", node.gpu_list}}));
  details.set("gpus", gpus);
  act(action::Note{event, std::move(details)});
}

std::vector<action::Any> EpochMachine::take() { return std::exchange(actions_, {}); }

}  // namespace swell::launcher
