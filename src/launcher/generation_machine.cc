// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/generation_machine.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fmt/format.h>

#include "core/count_of.h"
#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

namespace {

constexpr double kAnswers_s = 5;  // most programs that end for a signal have ended by then

}  // namespace

GenerationMachine::GenerationMachine(Settings settings, std::vector<WorkerNode> basic)
    : settings_(std::move(settings)),
      run_(std::move(basic)),
      out_(run_),
      planner_({settings_.gpus_per_worker, settings_.sizes, settings_.step}),
      leaving_({settings_.restart_signal, settings_.agree_s}, run_, out_),
      growth_({.max_pauses = settings_.max_restarts}),
      signals_({settings_.restart_signal, settings_.end_timeout_s, settings_.leave_code}),
      progress_(settings_.hang) {
  if (!settings_.never_grows.empty()) growth_.pause(0, settings_.never_grows, true);
}

void GenerationMachine::start(double) {
  out_.add(action::StartStep{settings_.job, run_.companions.basic()});
  set_state(JobState::allocated);
}

void GenerationMachine::handle(double now, const event::Any& event) {
  std::visit([&](const auto& one) { on(now, one); }, event);
}

void GenerationMachine::end(double now, int signal, std::optional<double> kill_at,
                            bool code_is_final) {
  bool for_requeue = false;
  if (const Ending* before = in<Ending>()) {
    code_is_final = code_is_final || before->code_is_final;
    for_requeue = before->for_requeue && signal == SIGTERM;  // as Slurm sends at the time limit
  }
  if ((settings_.live || is<LiveSwitch>()) && !is<Ending>()) out_.add(action::CallOffLive{});
  leaving_.drop();
  begin_ending({kill_at, code_is_final, for_requeue}, now);
  if (auto workers = run_.workers.running(); signal != 0 && !workers.empty())
    out_.add(action::SignalWorkers{std::move(workers), signal});
  advance(now);
}

void GenerationMachine::begin_ending(Ending next, double now) {
  DeferredEvents deferred;
  if (LiveSwitch* one = in<LiveSwitch>()) deferred = std::move(one->deferred());
  phase_ = next;
  tell_no_growth();
  handle(now, std::move(deferred));
  // Companions that take part stay until their workers have ended; the others go back now.
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job);
        each != nullptr && !each->reclaimed && !run_.takes_part(*each))
      reclaim(now, *each, kEnds);
}

void GenerationMachine::advance(double now) {
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
  if (const Restart* restart = in<Restart>();
      restart != nullptr && run_.workers.running().empty()) {
    code_ = 0;  // of the generation before
    if (settings_.leave_code && run_.all_ended_well()) return finish();
    for (const JobId job : run_.companions.jobs()) release_if_left(job);
    const bool waits = restart->what().purpose == Purpose::requeue && requeue_.wait_s > 0;
    phase_ = Gathering{now + settings_.warm_timeout_s, restart->what()};
    if (waits) {
      out_.note("left-for-requeue");
      wait_for_requeue(now);
    }
  }
  if (is<Gathering>() && !in<Gathering>()->requeued_by) {
    RankAssignment assignment = planner_.next(run_);
    if (run_.are_ready(assignment) && !waits_for_lent(now))
      start_generation(now, std::move(assignment));
  }
  if (is<Running>()) {
    const bool done = run_.workers.running().empty();
    if (done && is_failing()) return;  // decide() has yet to judge the failure
    if (done && !in<Running>()->not_begun.empty()) return begin_otherwise(now);
    if (done) return finish();
    if (is_live() && in<Running>()->ask_at) ends_with_others(now, in<Running>()->leave_by);
  }
  if (const Running* one = in<Running>(); one != nullptr && one->settles_at) return;
  if (is_live() && !leaving_.is_pending() && !is_failing() && run_.drain_by() &&
      run_.workers.others().empty() && run_.all_train())
    give_back_lent(now);
  if (is<Running>() && !leaving_.is_pending() && !is_failing() && run_.workers.others().empty() &&
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

/// Returns whether the first generation still waits for GPUs that were offered and are on the way,
/// or for a first offer.
bool GenerationMachine::waits_for_lent(double now) {
  if (run_.generation >= 0 || (offered_.ever && !is_warming())) return false;
  Gathering& gathering = *in<Gathering>();
  if (!gathering.up_since) gathering.up_since = now;
  gathering.begins_by =
      *gathering.up_since + (offered_.ever ? settings_.first_wait_s : settings_.first_offer_s);
  return now < *gathering.begins_by;
}

/// Starts a growth to the workers that wait. A switch must end before the earliest growth limit of
/// the new companions.
void GenerationMachine::begin_growing(double now) {
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
  if (choose(now, Purpose::grow).strategy == Strategy::restart)
    return begin_restart(now, Purpose::grow, now + settings_.restart_timeout_s);
  double by = kNever;
  for (const HeldCompanion& each : run_.companions.held())
    if (!each.reclaimed && !run_.takes_part(each) && has_seat(next, each))
      by = std::min(by, each.grown_by);
  const bool is_growth_limit = std::isfinite(by);
  if (!is_growth_limit) by = now + settings_.switch_timeout_s;
  begin_switch(now, Purpose::grow, by, by + settings_.end_timeout_s, is_growth_limit);
}

/// Chooses how the workers are changed for `purpose`. GPUs go back by a live switch if that is
/// expected to end in time, and not much later than workers would leave; else the workers are asked
/// to leave at once. Then the pending job waits neither for a switch that fails nor longer than for
/// a job in restart mode. A first switch, whose time is not known, is tried if programs may keep
/// their processes, or do not handle the restart signal.
GenerationMachine::Choice GenerationMachine::choose(double now, Purpose purpose) const {
  switch (purpose) {
    case Purpose::grow:
      return {is_live() && !in<Running>()->lacks_room ? Strategy::live : Strategy::restart};
    case Purpose::replan: return {is_live() ? Strategy::live : Strategy::none};
    case Purpose::give_back: break;
    case Purpose::user_restart:
    case Purpose::retry:
    case Purpose::requeue:
    case Purpose::hang: return {Strategy::restart};
  }
  if (!is_live()) return {Strategy::restart};
  const double left = run_.drain_by().value_or(now) - now, limit = left * settings_.live_share;
  if (left < settings_.min_live_s) return {Strategy::restart, "there is no time for a switch"};
  if (const auto expected = pace_.expected_s(); expected && *expected > limit)
    return {Strategy::restart,
            fmt::format("a switch takes about {:.1f} s and has {:.1f} s", *expected, limit)};
  if (const auto longer = pace_.longer_than_leaving_s(run_.all_listen());
      longer && *longer > settings_.live_extra_s)
    return {Strategy::restart,
            fmt::format("a switch takes about {:.1f} s longer than leaving", *longer)};
  return {Strategy::live};
}

void GenerationMachine::start_generation(double now, RankAssignment assignment) {
  const std::optional<Reconfiguration> restart = in<Gathering>()->restart;
  leaving_.drop();
  drop_unfit_plan(assignment);
  run_.assignment = std::move(assignment);
  if (!run_.has_begun()) end_growth();
  planner_.drop();
  run_.generation = ++run_.last_generation;
  phase_ = Running{now, std::nullopt, false, settings_.live};
  progress_.begin(now);
  pace_.starts(now);
  in<Running>()->was_resized =
      restart && restart->purpose != Purpose::retry && restart->purpose != Purpose::hang;
  code_ = 0;
  action::StartWorkers start = start_of(run_.generation, run_.assignment);
  std::vector<WorkerId> ranks;
  for (const auto& [id, environment] : start.workers) {
    ranks.push_back(id);
    run_.workers[id].running = true;
    run_.workers[id].ready = run_.workers[id].ended_well = false;
  }
  out_.add(std::move(start));
  if (settings_.live)
    out_.add(action::BeginLive{run_.generation, std::move(ranks), tries_snapshots_});
  stopped_s_ = restart ? now - restart->since : 0;
  if (restart)
    out_.say(
        fmt::format("{} started (generation {}), {:.2f} s after the others were asked to leave",
                    count_of(run_.assignment.seats.size(), "worker"), run_.generation, stopped_s_));
  if (restart) paused_since_ = paused_since_.value_or(restart->since);
  out_.note("generation-started", Json::object({{"stopped_s", stopped_s_}}));
  set_state(is_warming() ? JobState::warming : JobState::active);
}

/// Returns the action that starts the programs of a generation on these seats.
action::StartWorkers GenerationMachine::start_of(int generation, const RankAssignment& assignment) {
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
  std::map<std::string, int> on_host;  // a host may have workers of several allocations
  action::StartWorkers start{generation, {}, false, settings_.live};
  for (const Seat& seat : assignment.seats) {
    Environment environment = run_environment(assignment, seat, facts);
    environment.emplace_back("SWELL_GENERATION", std::to_string(generation));
    environment.emplace_back("SWELL_EPOCH", std::to_string(generation));  // its former name
    environment.emplace_back("SWELL_JOB_ID", std::to_string(settings_.job));
    environment.emplace_back("SWELL_RUN", settings_.run);
    environment.emplace_back("SWELL_BASIC_WORKERS", std::to_string(basic_workers));
    environment.emplace_back("SWELL_RESTART_SIGNAL", signal_name(settings_.restart_signal));
    // Copies of variables that a launcher within the program replaces.
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

/// Asks the workers to leave for another generation. `asks` false: they were asked already. For a
/// growth, a user's signal or a requeue they train on if none of them leaves. If they are leaving
/// already, this only shortens their time.
void GenerationMachine::begin_restart(double now, Purpose purpose, double by, bool asks) {
  by = std::max(by, now);
  if (Restart* restart = in<Restart>()) return restart->shorten(by);
  const Running* before = in<Running>();
  const bool live = before != nullptr && before->has_begun;
  const bool may_return =
      purpose == Purpose::grow || purpose == Purpose::user_restart || purpose == Purpose::requeue;
  phase_ = Restart({run_.generation, run_.last_generation + 1, purpose, now, by},
                   may_return ? std::optional(*before) : std::nullopt);
  for (const int signal : signals_.sent_within(kAnswers_s, now)) misses(signal);
  if (!run_.workers.running().empty()) {
    out_.note("signalled", Json::object({{"signal", signal_name(settings_.restart_signal)},
                                         {"within_s", by - now}}));
    if (asks) leaving_.ask(now, by - now, live);
  }
  set_state(may_return ? JobState::switching : JobState::draining);
}

/// Starts the programs again from their last checkpoint, once all workers are killed.
void GenerationMachine::restart_killed(double now, Purpose purpose, double by) {
  phase_ = Restart({run_.generation, run_.last_generation + 1, purpose, now, by});
  code_ = 0;
  set_state(JobState::draining);
  kill_running(now);
}

/// Asks the workers to leave by `by`, since GPUs go back. If some have ended by themselves,
/// training ends: to ask others to leave would run all of it again. These have until the deadline,
/// even if the GPUs are back before. In live mode advance() gives the GPUs back.
void GenerationMachine::leave_for_reclaim(double now, double by) {
  if (is_live()) return;
  const double ask_at = by - settings_.restart_timeout_s / 2;
  Running* running = in<Running>();
  if (running == nullptr || !is_ending_by_itself() || now >= ask_at)
    return begin_restart(now, Purpose::give_back, by);
  if (running->ask_at && *running->ask_at <= ask_at) return;
  running->ask_at = ask_at;
  running->leave_by = by;
}

/// Kills all workers; the next generation resumes from a checkpoint. REQUIRES: the phase is
/// Restart.
void GenerationMachine::kill_running(double now) {
  leaving_.drop();
  auto workers = run_.workers.running();
  if (workers.empty()) return;
  out_.note("killed", Json::object({{"count", workers.size()}}));
  out_.add(action::SignalWorkers{std::move(workers), SIGKILL});
  in<Restart>()->force();
  in<Restart>()->extend(now + settings_.end_timeout_s);
}

/// Kills the companion's workers. The run ends, and other workers keep their time for that.
void GenerationMachine::kill_there(double now, HeldCompanion& companion) {
  companion.leave_by = now + settings_.end_timeout_s;
  std::vector<WorkerId> workers;
  for (const WorkerId id : run_.workers.running())
    if (run_.companions.of_node(id.node) == &companion) workers.push_back(id);
  if (!workers.empty()) out_.add(action::SignalWorkers{std::move(workers), SIGKILL});
}

/// Has the workers that were asked to leave train on. REQUIRES: a Restart that may_return().
void GenerationMachine::return_to_running() {
  if (in<Restart>()->what().purpose == Purpose::requeue)
    not_requeued_ = "its workers did not leave";
  Running before = in<Restart>()->take_before();
  phase_ = std::move(before);
  leaving_.drop();
  signals_.forget_missed();  // the running programs have received them
}

/// Handles workers that have not left in time. They are killed only if GPUs go back, or if they
/// cannot train on without those that have left.
void GenerationMachine::leaving_is_late(double now) {
  Restart& restart = *in<Restart>();
  if (const auto drain = run_.drain_by(); restart.may_return() && drain) {
    restart.must_leave();  // it is for a reclaim by now
    restart.extend(std::max(restart.deadline(), *drain));
    if (now < restart.deadline()) return;
  }
  if (restart.may_return()) return call_off_leaving(now);
  out_.say(
      fmt::format("{} did not leave in time: killed; training resumes from the last checkpoint",
                  count_of(run_.workers.running().size(), "worker")));
  // A program that heard the request, and had all the time that the job asked for, would not leave
  // the next time either. A worker still starting has heard nothing yet.
  const Reconfiguration& what = restart.what();
  if (what.purpose != Purpose::grow && what.purpose != Purpose::hang &&
      run_.workers.one_listened(settings_.restart_timeout_s, run_.generation, what.since, now))
    pause_growth(now,
                 fmt::format("workers did not leave within {:g} s of the restart signal",
                             settings_.restart_timeout_s),
                 true);
  kill_running(now);
}

/// Handles a worker that leaves for a resize that was given up. This does not end training: the
/// other workers are waited for.
void GenerationMachine::leave_late(double now) {
  out_.say(
      fmt::format("a worker left more than {:g} s after it was asked to: the others follow; a "
                  "longer grace= gives workers more time",
                  settings_.restart_timeout_s));
  const auto drain = run_.drain_by();
  phase_ = Restart({run_.generation, run_.last_generation + 1, Purpose::grow, now,
                    std::min(now + settings_.late_s, drain.value_or(kNever))});
  in<Restart>()->force();  // it was asked before
  set_state(JobState::draining);
}

void GenerationMachine::finish() {
  if (is<Over>()) return;
  if (const Running* last = in<Running>()) end_pause(last->since);  // they never reported ready
  const bool for_requeue =
      is<Ending>() && in<Ending>()->for_requeue && !(settings_.leave_code && run_.all_ended_well());
  if (is<Ending>() && in<Ending>()->for_requeue) code_ = for_requeue ? kRequeueCode : 0;
  phase_ = Over{};
  for (const JobId job : run_.companions.jobs()) {
    run_.companions.find(job)->reason = "the program has ended";
    run_.companions.release(job);
    out_.add(action::Release{job});
  }
  out_.note("finished", Json::object({{"code", code_}}));
  out_.add(action::Finish{std::clamp(code_, 0, 255), for_requeue});
}

}  // namespace swell::launcher
