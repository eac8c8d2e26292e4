// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/epoch_machine.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fmt/format.h>

#include "core/count_of.h"
#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

namespace {

constexpr double kAnswers_s = 5;  // programs that end for a signal mostly have by then

}  // namespace

EpochMachine::EpochMachine(Settings settings, std::vector<WorkerNode> basic)
    : settings_(std::move(settings)),
      run_(std::move(basic)),
      planner_({settings_.gpus_per_worker, settings_.sizes, settings_.step}),
      growth_({.max_pauses = settings_.max_restarts}),
      progress_(settings_.hang),
      out_(run_) {
  if (!settings_.never_grows.empty()) growth_.pause(0, settings_.never_grows, true);
}

void EpochMachine::start(double) {
  out_.add(action::StartStep{settings_.job, run_.companions.basic()});
  set_state(JobState::allocated);
}

void EpochMachine::end(double now, int signal, std::optional<double> kill_at, bool code_is_final) {
  bool for_requeue = false;
  if (const Ending* before = in<Ending>()) {
    code_is_final = code_is_final || before->code_is_final;
    for_requeue = before->for_requeue && signal == SIGTERM;  // as Slurm sends at the time limit
  }
  if ((settings_.live || is<Switching>()) && !is<Ending>()) out_.add(action::CallOffLive{});
  asking_.reset();
  begin_ending({kill_at, code_is_final, for_requeue}, now);
  if (auto workers = run_.workers.running(); signal != 0 && !workers.empty())
    out_.add(action::SignalWorkers{std::move(workers), signal});
  advance(now);
}

void EpochMachine::begin_ending(Ending next, double now) {
  phase_ = next;
  tell_no_growth();
  handle_deferred(now);
  // Those that take part have workers, which may need their time.
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job);
        each != nullptr && !each->reclaimed && !run_.takes_part(*each))
      reclaim(now, *each, kEnds);
}

void EpochMachine::advance(double now) {
  if (is_ready(false)) {
    pace_.ready(now);
    end_growth();
    end_pause(now);
    pass_missed(now);
  }
  if (is_ready_again()) {
    recovery_.reset();
    out_.note("recovered");
  }
  if (const Leaving* leaving = in<Leaving>();
      leaving != nullptr && run_.workers.running().empty()) {
    code_ = 0;  // of the epoch before
    if (settings_.leave_code && run_.all_ended_well()) return finish();
    for (const JobId job : run_.companions.jobs()) release_if_left(job);
    Gathering next{now + settings_.warm_timeout_s, leaving->since};
    next.is_retry = leaving->purpose == Purpose::retry || leaving->purpose == Purpose::hang;
    phase_ = next;
  }
  if (is<Gathering>()) {
    RankAssignment assignment = planner_.next(run_);
    if (run_.are_ready(assignment) && !waits_for_lent(now)) start_epoch(now, std::move(assignment));
  }
  if (is<Running>()) {
    const bool done = run_.workers.running().empty();
    if (done && is_failing()) return;  // what becomes of it is still open
    if (done && !in<Running>()->not_begun.empty()) return begin_otherwise(now);
    if (done) return finish();
    if (is_live() && in<Running>()->ask_at) ends_with_others(now, in<Running>()->leave_by);
  }
  if (const Running* one = in<Running>(); one != nullptr && one->settles_at) return;
  if (is_live() && !asking_ && !is_failing() && run_.drain_by() && run_.workers.others().empty() &&
      run_.all_train())
    leave_live(now);
  if (is<Running>() && !asking_ && !is_failing() && run_.workers.others().empty() &&
      run_.all_train() && joiners_wait())
    begin_growing(now);
  // Companions that came up have gone back without joining: others may be offered.
  if (is<Running>() && state_ == JobState::warming && !is_warming() &&
      std::all_of(run_.companions.held().begin(), run_.companions.held().end(),
                  [this](const HeldCompanion& each) { return run_.takes_part(each); }))
    set_state(JobState::active);
  run_ordered(now);
  if (is<Ending>() && run_.workers.running().empty()) finish();
}

/// Whether the first epoch does not begin yet, since GPUs that were offered before are on the way,
/// or may be offered at once.
bool EpochMachine::waits_for_lent(double now) {
  if (run_.epoch >= 0 || (offered_.ever && !is_warming())) return false;
  Gathering& gathering = *in<Gathering>();
  if (!gathering.up_since) gathering.up_since = now;
  gathering.begins_by =
      *gathering.up_since + (offered_.ever ? settings_.first_wait_s : settings_.first_offer_s);
  return now < *gathering.begins_by;
}

void EpochMachine::begin_growing(double now) {
  set_state(JobState::ready);
  const RankAssignment next = planner_.next(run_);
  std::vector<WorkerNode> lent;
  for (const HeldCompanion& each : run_.companions.held())
    if (each.up && !run_.workers.run_on(each.nodes))
      lent.insert(lent.end(), each.nodes.begin(), each.nodes.end());
  out_.say(fmt::format(
      "growing from {} to {} ({} lent{})", run_.assignment.seats.size(),
      count_of(next.seats.size(), "worker"), describe(lent),
      next.idle > 0 ? fmt::format("; {} wait, as the plan does without them", next.idle) : ""));
  if (is_live() && !in<Running>()->lacks_room) return grow_live(now, next);
  Running before = *in<Running>();
  begin_leaving(now, JobState::switching, now + settings_.restart_timeout_s);
  in<Leaving>()->purpose = Purpose::grow;
  in<Leaving>()->before = std::move(before);
}

void EpochMachine::start_epoch(double now, RankAssignment assignment) {
  const std::optional<double> stopped_since = in<Gathering>()->stopped_since;
  const bool is_retry = in<Gathering>()->is_retry;
  asking_.reset();
  drop_unfit_plan(assignment);
  run_.assignment = std::move(assignment);
  if (!run_.has_begun()) end_growth();
  planner_.drop();
  run_.epoch = ++run_.last_epoch;
  phase_ = Running{now, std::nullopt, false, settings_.live};
  progress_.begin(now);
  pace_.starts(now);
  in<Running>()->was_resized = stopped_since && !is_retry;
  code_ = 0;
  action::StartWorkers start = start_of(run_.epoch, run_.assignment);
  std::vector<WorkerId> ranks;
  for (const auto& [id, environment] : start.workers) {
    ranks.push_back(id);
    run_.workers[id].running = true;
    run_.workers[id].ready = run_.workers[id].ended_well = false;
  }
  out_.add(std::move(start));
  if (settings_.live) out_.add(action::BeginLive{run_.epoch, std::move(ranks), tries_snapshots_});
  stopped_s_ = stopped_since ? now - *stopped_since : 0;
  if (stopped_since)
    out_.say(fmt::format("{} started (epoch {}), {:.2f} s after the others were asked to leave",
                         count_of(run_.assignment.seats.size(), "worker"), run_.epoch, stopped_s_));
  if (stopped_since) paused_since_ = paused_since_.value_or(*stopped_since);
  out_.note("epoch-started", Json::object({{"stopped_s", stopped_s_}}));
  set_state(is_warming() ? JobState::warming : JobState::active);
}

/// The programs of an epoch over these seats.
action::StartWorkers EpochMachine::start_of(int epoch, const RankAssignment& assignment) {
  const WorkerState& master = run_.workers[assignment.seats.front().worker];
  int basic_workers = 0;
  for (const WorkerNode& node : run_.companions.basic()) basic_workers += node.workers;
  RunFacts facts;
  facts.job = settings_.job;
  facts.nodes = run_.companions.usable();
  facts.master_address = master.host;
  facts.master_port = master.port;
  facts.step = master.step;
  facts.gpus_per_worker = settings_.gpus_per_worker;
  facts.tells_gpus = settings_.tells_gpus;
  facts.devices_apart = devices_apart_;
  facts.restarts = static_cast<int>(restarts_.size());
  facts.max_restarts = settings_.max_restarts;
  std::map<int, std::string> host_of;
  for (const WorkerNode& node : facts.nodes) host_of[node.id] = node.name;
  std::map<std::string, int> on_host;  // of several allocations where lent GPUs are on its nodes
  action::StartWorkers start{epoch, {}, false, settings_.live};
  for (const Seat& seat : assignment.seats) {
    Environment environment = run_environment(assignment, seat, facts);
    environment.emplace_back("SWELL_EPOCH", std::to_string(epoch));
    environment.emplace_back("SWELL_JOB_ID", std::to_string(settings_.job));
    environment.emplace_back("SWELL_RUN", settings_.run);
    environment.emplace_back("SWELL_BASIC_WORKERS", std::to_string(basic_workers));
    environment.emplace_back("SWELL_RESTART_SIGNAL", signal_name(settings_.restart_signal));
    // Variables that a launcher within the program replaces.
    environment.emplace_back("SWELL_RANK", std::to_string(start.workers.size()));
    environment.emplace_back("SWELL_WORLD_SIZE", std::to_string(assignment.seats.size()));
    environment.emplace_back("SWELL_HOST_LOCAL_RANK",
                             std::to_string(on_host[host_of[seat.worker.node]]++));
    if (settings_.leave_code)
      environment.emplace_back("SWELL_LEAVE_CODE", std::to_string(*settings_.leave_code));
    environment.emplace_back("SWELL_CONSISTENCY", settings_.exact ? "exact" : "relaxed");
    if (!assignment.plan.empty()) environment.emplace_back("SWELL_PLAN", assignment.plan);
    start.workers.emplace_back(seat.worker, std::move(environment));
  }
  return start;
}

void EpochMachine::begin_leaving(double now, JobState state, double by, bool asks) {
  by = std::max(by, now);
  if (Leaving* leaving = in<Leaving>()) {
    leaving->by = std::min(leaving->by, by);
    return;
  }
  const bool live = in<Running>() != nullptr && in<Running>()->has_begun;
  phase_ = Leaving{by, now};
  for (const auto& [signal, at] : forwarded_)
    if (now - at < kAnswers_s) misses(signal);
  if (!run_.workers.running().empty()) {
    out_.note("signalled", Json::object({{"signal", signal_name(settings_.restart_signal)},
                                         {"within_s", by - now}}));
    if (asks) ask_to_leave(now, by - now, live);
  }
  set_state(state);
}

/// Asks the workers to leave, since GPUs go back by then. Where some have ended by themselves the
/// training ends: asking others to leave then would run all of it again. They have as long as the
/// deadline permits, even if the GPUs are back before.
void EpochMachine::leave_for_reclaim(double now, double by) {
  const double ask_at = by - settings_.restart_timeout_s / 2;
  Running* running = in<Running>();
  if (running == nullptr || !is_ending_by_itself() || now >= ask_at)
    return begin_leaving(now, JobState::draining, by);
  if (running->ask_at && *running->ask_at <= ask_at) return;
  running->ask_at = ask_at;
  running->leave_by = by;
}

/// All workers are killed; the next epoch resumes from a checkpoint. REQUIRES: the phase is
/// Leaving.
void EpochMachine::kill_running(double now) {
  asking_.reset();
  auto workers = run_.workers.running();
  if (workers.empty()) return;
  out_.note("killed", Json::object({{"count", workers.size()}}));
  out_.add(action::SignalWorkers{std::move(workers), SIGKILL});
  in<Leaving>()->is_forced = true;
  in<Leaving>()->by = now + settings_.end_timeout_s;
}

/// The run ends, and others may take their time for that.
void EpochMachine::kill_there(double now, HeldCompanion& companion) {
  companion.leave_by = now + settings_.end_timeout_s;
  std::vector<WorkerId> workers;
  for (const WorkerId id : run_.workers.running())
    if (run_.companions.of_node(id.node) == &companion) workers.push_back(id);
  if (!workers.empty()) out_.add(action::SignalWorkers{std::move(workers), SIGKILL});
}

/// Whether a program that was asked to leave, and heard it, had all the time that the job asked
/// for: it would not leave the next time either. A worker still starting has heard nothing yet.
bool EpochMachine::had_its_time(double now, const Leaving& leaving) const {
  return run_.workers.one_listened(settings_.restart_timeout_s, run_.epoch, leaving.since, now);
}

/// Workers have not left in time. Only where GPUs go back, or where the others cannot train on
/// without those that left, are they killed.
void EpochMachine::leaving_is_late(double now) {
  Leaving& leaving = *in<Leaving>();
  if (const auto drain = run_.drain_by(); leaving.before && drain) {
    leaving.before.reset();  // it is for a reclaim by now
    leaving.by = std::max(leaving.by, *drain);
    if (now < leaving.by) return;
  }
  if (leaving.before) return call_off_leaving(now);
  out_.say(
      fmt::format("{} did not leave in time: killed; training resumes from the last checkpoint",
                  count_of(run_.workers.running().size(), "worker")));
  if (leaving.purpose != Purpose::grow && leaving.purpose != Purpose::hang &&
      had_its_time(now, leaving))
    pause_growth(now,
                 fmt::format("workers did not leave within {:g} s of the restart signal",
                             settings_.restart_timeout_s),
                 true);
  kill_running(now);
}

/// A worker leaves for a resize that was given up: this does not end training; waits for the
/// other workers.
void EpochMachine::leave_late(double now) {
  out_.say(
      fmt::format("a worker left more than {:g} s after it was asked to: the others follow; a "
                  "longer grace= gives workers more time",
                  settings_.restart_timeout_s));
  const auto drain = run_.drain_by();
  phase_ = Leaving{std::min(now + settings_.late_s, drain.value_or(kNever)), now, Purpose::grow};
  in<Leaving>()->is_forced = true;  // it was asked before
  set_state(JobState::draining);
}

void EpochMachine::finish() {
  if (is<Over>()) return;
  if (const Running* last = in<Running>()) end_pause(last->since);  // its programs never said
  const bool for_requeue =
      is<Ending>() && in<Ending>()->for_requeue && !(settings_.leave_code && run_.all_ended_well());
  if (is<Ending>() && in<Ending>()->for_requeue) code_ = for_requeue ? kRequeueCode : 0;
  phase_ = Over{};
  deferred_.clear();
  for (const JobId job : run_.companions.jobs()) {
    run_.companions.find(job)->reason = "the program has ended";
    run_.companions.release(job);
    out_.add(action::Release{job});
  }
  out_.note("finished", Json::object({{"code", code_}}));
  out_.add(action::Finish{std::clamp(code_, 0, 255), for_requeue});
}

}  // namespace swell::launcher
