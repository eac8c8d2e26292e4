// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the epoch machine: live mode, which starts the next programs beside the running ones.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "core/count_of.h"
#include "launcher/epoch_machine.h"
#include "launcher/plan_assignment.h"
#include "launcher/signals.h"
#include "runtime/messages.h"

namespace swell::launcher {

using control::JobState;

namespace {

std::vector<WorkerId> workers_of(const RankAssignment& assignment) {
  std::vector<WorkerId> workers;
  for (const Seat& seat : assignment.seats) workers.push_back(seat.worker);
  return workers;
}

}  // namespace

void EpochMachine::begun(double now, int epoch, const std::string& why, std::uint64_t snapshot_step,
                         bool stays) {
  Running* running = in<Running>();
  if (running == nullptr || epoch != run_.epoch) return;
  if (!why.empty()) {
    running->not_begun = why;
    running->not_begun_by = now + settings_.end_timeout_s;
    out_.say("live mode: the programs could not begin: " + why);
    if (ordered_) refuse_plan("its programs could not begin with Swell's runtime: " + why);
    return;
  }
  running->has_begun = tries_snapshots_ = true;
  running->awaits_runtime = false;
  pace_.began(now - running->since, stays);
  out_.note("live-begun",
            Json::object({{"snapshot_step", static_cast<std::int64_t>(snapshot_step)}}));
  if (snapshot_step != 0)
    out_.say(fmt::format("live: {} {} on from the snapshot of step {}",
                         count_of(run_.assignment.seats.size(), "worker"),
                         run_.assignment.seats.size() == 1 ? "goes" : "go", snapshot_step));
  tell_no_growth();
  advance(now);
}

/// Starts the programs of the next epoch and has the state moved to them.
void EpochMachine::begin_switch(double now, Purpose purpose, double by, double hard_by) {
  Switching one;
  one.before = *in<Running>();
  one.next = planner_.next(run_);
  drop_unfit_plan(one.next);
  one.epoch = ++run_.last_epoch;
  pace_.switches();
  one.purpose = purpose;
  one.since = now;
  one.by = by;
  one.hard_by = hard_by;
  action::StartWorkers start = start_of(one.epoch, one.next);
  start.none_is_new =
      std::all_of(start.workers.begin(), start.workers.end(),
                  [this](const auto& each) { return run_.workers[each.first].running; });
  for (const auto& [id, environment] : start.workers) {
    run_.workers.others()[{one.epoch, id}] = kNever;
    run_.workers[id].ready = false;
  }
  action::SwitchLive order{one.epoch, workers_of(run_.assignment), workers_of(one.next),
                           purpose == Purpose::give_back ? by - now : 0};
  out_.note("switch-prepare", Json::object({{"next", one.epoch}, {"to", order.to.size()}}));
  one.to_running = start.none_is_new;
  phase_ = std::move(one);
  out_.add(std::move(start));
  out_.add(std::move(order));
  set_state(purpose == Purpose::grow     ? JobState::ready
            : purpose == Purpose::replan ? JobState::switching
                                         : JobState::draining);
}

/// Keeps the order until nothing else changes the workers: programs of the epoch before leave
/// within `end_timeout_s`, and those of the first one may still be loading.
void EpochMachine::replan(double now, const control::Replan& order) {
  if (is<Over>() || is<Ending>()) return refuse_plan("the job is ending");
  if (!settings_.live) return refuse_plan("only live mode changes plans of a running program");
  ordered_ = order;
  planner_.refuse({});
  advance(now);
  if (ordered_)
    out_.say("another plan is asked for; it is run once the GPUs are no longer changing");
}

/// Switches the same workers to the plan that was ordered, as soon as that can be done.
void EpochMachine::run_ordered(double now) {
  if (!ordered_ || !is_live() || asking_ || is_failing() || run_.drain_by() ||
      !run_.workers.others().empty() || is_warming() || joiners_wait())
    return;
  const control::Replan order = *std::exchange(ordered_, std::nullopt);
  const auto plan = plan::Plan::from_json(order.plan);
  if (!plan) return refuse_plan(plan.error().message());
  const auto assignment = seat_by_plan(*plan, run_.companions.usable(), settings_.gpus_per_worker);
  if (!assignment) return refuse_plan(assignment.error().message());
  if (assignment->plan == run_.assignment.plan) return refuse_plan("it runs already");
  out_.say(fmt::format("switching to another plan, {}: {}", plan->summary(), order.reason));
  planner_.want(*plan);
  begin_switch(now, Purpose::replan, now + settings_.switch_timeout_s,
               now + settings_.switch_timeout_s + settings_.end_timeout_s);
}

/// A plan that was ordered is not run; its owner reads why in `swell jobs`.
void EpochMachine::refuse_plan(const std::string& why) {
  ordered_.reset();
  planner_.refuse(why);
  switched_ = "another plan is not run: " + why;
  out_.say(switched_);
  out_.note("replan-refused", Json::object({{"reason", why}}));
  out_.add(action::Tell{status()});
}

void EpochMachine::switching(double now, int epoch, SwitchPhase phase) {
  Switching* one = in<Switching>();
  if (one == nullptr || one->epoch != epoch) return;
  const bool was_prepared = one->progress.is_prepared();
  if (!one->progress.enter(now, phase)) return;
  out_.note(std::string("switch-") + runtime::SwitchMachine::to_text(phase),
            Json::object({{"next", epoch}}));
  if (was_prepared || !one->progress.is_prepared()) return;
  pace_.started(now - one->since, one->to_running);
  if (one->purpose == Purpose::grow) set_state(JobState::switching);
}

/// The others have all that only the leaving workers had: their GPUs go back at once, and the rest
/// takes the time that it needs. News of theirs may have come before this.
void EpochMachine::let_go(double now, int epoch) {
  Switching* one = in<Switching>();
  if (one == nullptr || one->epoch != epoch || !one->progress.let_go()) return;
  out_.note("switch-let-go", Json::object({{"next", epoch}}));
  for (const Seat& seat : run_.assignment.seats) {
    if (!was_let_go(seat.worker) || !std::exchange(run_.workers[seat.worker].running, false))
      continue;
    run_.workers.others()[{run_.epoch, seat.worker}] =
        std::min(now + settings_.end_timeout_s, one->hard_by);
  }
  one->by = now + settings_.switch_timeout_s;
  one->is_growth_limit = false;
  one->hard_by = one->by + settings_.end_timeout_s;
  handle_deferred(now);
}

/// Whether it leaves with the switch under way, and was told so.
bool EpochMachine::was_let_go(WorkerId worker) const {
  const Switching* one = in<Switching>();
  return one != nullptr && one->progress.has_let_go() &&
         std::none_of(one->next.seats.begin(), one->next.seats.end(),
                      [worker](const Seat& seat) { return seat.worker == worker; });
}

void EpochMachine::call_off(CallOffCause cause, const std::string& why) {
  Switching* one = in<Switching>();
  if (one == nullptr || !one->progress.call_off(cause, why)) return;
  out_.note("switch-called-off", Json::object({{"next", one->epoch}, {"reason", why}}));
  out_.add(action::CallOffLive{});
}

/// Companions are given back during a switch: one that would use them is called off, one that frees
/// them goes on; either has until then.
void EpochMachine::make_way(double by) {
  Switching* one = in<Switching>();
  one->hard_by = std::min(one->hard_by, by);
  for (const HeldCompanion& each : run_.companions.held())
    for (const Seat& seat : one->next.seats)
      for (const WorkerNode& node : each.nodes)
        if (each.reclaimed && seat.worker.node == node.id) {
          one->is_outdated = true;
          return call_off(CallOffCause::gpus_reclaimed, "GPUs go back: " + each.reason);
        }
}

/// Keeps an event for the end of a switch under way. One that `spoils` the switch calls it off, and
/// so does any until the old programs are being stopped: then the shims know better. Returns false
/// if there is no switch.
bool EpochMachine::defers(DeferredEvent event, bool spoils, CallOffCause cause) {
  Switching* one = in<Switching>();
  if (one == nullptr) return false;
  deferred_.add(std::move(event));
  if (spoils || !one->progress.is_prepared()) call_off(cause, "a worker has ended");
  return true;
}

/// Handles the events that waited for the outcome of a switch. REQUIRES: it is known, or the
/// leaving workers were let go.
void EpochMachine::handle_deferred(double now) {
  struct Handler {
    EpochMachine& machine;
    const double now;
    void operator()(const WorkerReady& event) const {
      WorkerState& worker = machine.run_.workers[event.worker];
      worker.ready = worker.present;
      machine.advance(now);
    }
    void operator()(const ProgramExited& event) const {
      machine.exited(now, event.worker, event.exit, event.epoch);
    }
    void operator()(const WorkerLost& event) const { machine.lost(now, event.worker); }
    void operator()(const StepEnded& event) const {
      machine.step_ended(now, event.job, event.exit, event.misfit);
    }
    void operator()(const RestartRequested& event) const {
      machine.leave_and_return(now, event.asks);
    }
  };
  deferred_.drain(Handler{*this, now});
}

void EpochMachine::switched(double now, int epoch, const SwitchOutcome& how) {
  Switching* current = in<Switching>();
  if (current == nullptr || current->epoch != epoch) {
    // The commit took too long: it is certain, but the lost workers are not known yet.
    if (how.committed && epoch == run_.epoch && is<Running>()) lose_silent(now, how.lost);
    return;
  }
  if (awaits_signal(*current, now, how)) return;
  SwitchOutcome outcome = how;
  if (!outcome.committed && outcome.code == ErrorCode::cancelled)
    outcome.called_off_for(current->progress.called_off() ? current->progress.called_off()->why
                                                          : std::string());
  // The effect of a user's signal on its programs says nothing of the switch.
  const int signal = outcome.committed ? 0 : signal_for(*current, now);
  const bool for_signal = signal != 0;
  if (for_signal) outcome.called_off_for(fmt::format("Slurm sent the job {}", signal_name(signal)));
  std::vector<WorkerId> leavers;  // that still run
  for (const Seat& seat : run_.assignment.seats)
    if (!was_let_go(seat.worker)) leavers.push_back(seat.worker);
  Switching one = std::move(*current);
  Json details = outcome.details;
  details.set("next", epoch);
  details.set("stopped_s", outcome.stopped_s);
  details.set("why", outcome.why);
  phase_ = one.before;
  const SwitchEnd end = one.progress.end(outcome, one.purpose, run_.all_listen());
  if (end == SwitchEnd::committed) switch_committed(now, one, outcome, std::move(details), leavers);
  else switch_aborted(now, one, outcome, std::move(details), end, for_signal);
  if (is<Running>()) set_state(is_warming() ? JobState::warming : JobState::active);
  handle_deferred(now);
  lose_silent(now, outcome.lost);
  // After the news: programs that are asked to leave are started again, and these may tell of the
  // training's end. An outdated switch is followed by another, once its programs have left.
  if (!for_signal && end != SwitchEnd::committed && one.purpose != Purpose::grow && is<Running>() &&
      (!one.is_outdated || end == SwitchEnd::silent) &&
      (run_.all_train() || (is_failing() && run_.shims_are_there()))) {
    reclaim_by_leaving(now, "no other switch is tried");
    if (is<Leaving>()) code_ = 0;  // who failed is started again, too
  }
  advance(now);
}

/// The next epoch trains; `leavers` are the workers of the one before that still run.
void EpochMachine::switch_committed(double now, const Switching& one, const SwitchOutcome& outcome,
                                    Json details, const std::vector<WorkerId>& leavers) {
  const int workers = static_cast<int>(run_.assignment.seats.size());
  for (const WorkerId worker : leavers) {
    run_.workers[worker].running = false;
    const HeldCompanion* its = run_.companions.of_node(worker.node);
    const double limit = its != nullptr && its->reclaimed ? its->leave_by : kNever;
    run_.workers.others()[{run_.epoch, worker}] =
        std::min(now + settings_.end_timeout_s, std::max(limit, now + 1));
  }
  run_.assignment = one.next;
  end_growth();
  planner_.drop();
  run_.epoch = one.epoch;
  for (const Seat& seat : run_.assignment.seats) {
    run_.workers[seat.worker].running = true;
    run_.workers.others().erase({one.epoch, seat.worker});
  }
  in<Running>()->since = now;
  progress_.begin(now);
  if (const auto prepared_at = one.progress.prepared_at()) pace_.moved(now - *prepared_at);
  stopped_s_ = outcome.stopped_s;
  switched_ = outcome.brief;
  out_.say(fmt::format("live: from {} to {}, {}", workers,
                       count_of(run_.assignment.seats.size(), "worker"), outcome.summary));
  out_.note("switch-committed", std::move(details));
}

/// The programs of the next epoch are killed; those of the old one train on where they can.
void EpochMachine::switch_aborted(double now, const Switching& one, const SwitchOutcome& outcome,
                                  Json details, SwitchEnd end, bool for_signal) {
  Running& running = *in<Running>();
  const std::optional<CalledOff>& called_off = one.progress.called_off();
  progress_.rest(now);
  if (for_signal) running.settles_at = now + settings_.blame_s;
  if (called_off && called_off->cause == CallOffCause::too_slow && !one.progress.is_prepared())
    pace_.started(now - one.since, one.to_running);
  details.set("phase", outcome.phase_text());
  out_.note("switch-aborted", std::move(details));
  switched_ = outcome.brief;
  if (planner_.wants()) planner_.refuse("its switch was called off: " + outcome.why);
  planner_.drop();
  const std::vector<WorkerId> workers = workers_of(one.next);
  for (const WorkerId id : workers)
    if (const auto each = run_.workers.others().find({one.epoch, id});
        each != run_.workers.others().end())
      each->second = now + settings_.end_timeout_s;
  out_.add(action::SignalWorkers{workers, SIGKILL, one.epoch});
  switch (end) {
    case SwitchEnd::lent_left:
      out_.say(
          "live mode: the switch failed when lent workers had left already; the run goes on from its "
          "last snapshot or checkpoint: " +
          outcome.why);
      begin_leaving(now, JobState::draining, now);
      break;
    case SwitchEnd::state_released:
      out_.say(
          "live mode: the switch failed between its chunks; the run goes on from the snapshot that was "
          "taken of its step: " +
          outcome.why);
      begin_leaving(now, JobState::draining, now);
      break;
    case SwitchEnd::silent:
      running.has_begun = false;
      out_.say("live mode: the programs stopped answering; they are resized by restarts: " +
               outcome.why);
      if (ordered_) refuse_plan("the programs stopped answering");
      break;
    case SwitchEnd::lacks_room:
      running.lacks_room = true;
      out_.say(fmt::format("live mode: {}; the job grows by a restart", outcome.why));
      break;
    case SwitchEnd::trains_on:
    case SwitchEnd::committed:
      out_.say(fmt::format("live: still {}, {}", count_of(run_.assignment.seats.size(), "worker"),
                           outcome.summary));
      break;
  }
  // A switch that failed by itself would fail again.
  if (one.purpose != Purpose::grow || end == SwitchEnd::lacks_room || for_signal ||
      (called_off && !called_off->blames_growth()))
    return;
  pause_growth(now, "a live switch failed: " + outcome.why);
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job);
        each != nullptr && each->up && !run_.takes_part(*each))
      reclaim(now, *each, outcome.why);
}

/// Workers whose shims did not answer the commit: their programs may wait for it for ever. They are
/// done without, as after a loss of their connection.
void EpochMachine::lose_silent(double now, const std::vector<WorkerId>& workers) {
  for (const WorkerId id : workers) {
    if (!run_.workers[id].running) continue;
    out_.add(action::SignalWorkers{{id}, SIGKILL, run_.epoch});
    lost(now, id);
  }
}

/// Gives GPUs back: by a switch to the others where that is expected to end in time, and not much
/// later than workers leave; else by leaving at once. Then nobody waits for a switch that fails,
/// nor longer than for a job in restart mode. A first switch is tried where it fits and programs
/// may keep their processes, or do not say when they have been asked to leave.
void EpochMachine::leave_live(double now) {
  const double by = *run_.drain_by(), left = by - now, limit = left * settings_.live_share;
  const auto expected = pace_.expected_s();
  if (left < settings_.min_live_s) return reclaim_by_leaving(now, "there is no time for a switch");
  if (expected && *expected > limit)
    return reclaim_by_leaving(
        now, fmt::format("a switch takes about {:.1f} s and has {:.1f} s", *expected, limit));
  if (const auto longer = pace_.longer_than_leaving_s(run_.all_listen());
      longer && *longer > settings_.live_extra_s)
    return reclaim_by_leaving(
        now, fmt::format("a switch takes about {:.1f} s longer than leaving", *longer));
  begin_switch(now, Purpose::give_back, now + limit, by);
}

/// As in restart mode. REQUIRES: the phase is Running.
void EpochMachine::reclaim_by_leaving(double now, const std::string& why) {
  const auto by = run_.drain_by();
  if (!by) return;
  out_.say(fmt::format("live mode: {}; the workers are asked to leave", why));
  begin_leaving(now, JobState::draining, *by);
}

/// Uses the restart signal; live programs that do not handle it leave at a step that they agree on,
/// if there is another program that could wait for a leaving one. REQUIRES: some run.
void EpochMachine::ask_to_leave(double now, double within_s, bool live) {
  if (asking_) return;
  std::vector<WorkerId> workers = run_.workers.running();
  const double limit = std::min(settings_.agree_s, within_s / 4);
  if (!live || limit <= 0 || workers.size() < 2 ||
      std::any_of(workers.begin(), workers.end(),
                  [this](WorkerId id) { return run_.workers[id].listens == run_.epoch; }))
    return out_.add(action::SignalWorkers{std::move(workers), settings_.restart_signal});
  // An answer comes that late only if the coordinator hangs.
  asking_ = Asking{run_.epoch, workers, now + 2 * limit};
  out_.add(action::StopLive{run_.epoch, std::move(workers), limit});
}

void EpochMachine::stopped(double now, int epoch, std::uint64_t step,
                           const std::vector<WorkerId>& untold) {
  if (!asking_ || asking_->epoch != epoch) return;
  asking_.reset();
  out_.note("stop-told",
            Json::object({{"step", static_cast<std::int64_t>(step)}, {"untold", untold.size()}}));
  std::vector<WorkerId> left;
  for (const WorkerId id : untold)
    if (run_.workers[id].running) left.push_back(id);
  if (!left.empty()) out_.add(action::SignalWorkers{std::move(left), settings_.restart_signal});
  advance(now);
}

}  // namespace swell::launcher
