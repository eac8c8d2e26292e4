// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: live mode, which starts the next programs beside the running
// ones.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "core/count_of.h"
#include "launcher/generation_machine.h"
#include "launcher/plan_assignment.h"
#include "launcher/signals.h"
#include "runtime/wire/messages.h"

namespace swell::launcher {

using control::JobState;

void GenerationMachine::on(double now, const event::Begun& begun) {
  Running* running = in<Running>();
  if (running == nullptr || begun.generation != run_.generation) return;
  if (!begun.why.empty()) {
    running->not_begun = begun.why;
    running->not_begun_by = now + settings_.end_timeout_s;
    out_.say("live mode: the programs could not begin: " + begun.why);
    if (ordered_) refuse_plan("its programs could not begin with Swell's runtime: " + begun.why);
    return;
  }
  running->has_begun = tries_snapshots_ = true;
  running->awaits_runtime = false;
  pace_.began(now - running->since, begun.stays);
  out_.note("live-begun",
            Json::object({{"snapshot_step", static_cast<std::int64_t>(begun.snapshot_step)}}));
  if (begun.snapshot_step != 0)
    out_.say(fmt::format("live: {} {} on from the snapshot of step {}",
                         count_of(run_.assignment.seats.size(), "worker"),
                         run_.assignment.seats.size() == 1 ? "goes" : "go", begun.snapshot_step));
  tell_no_growth();
  advance(now);
}

/// Starts the programs of the next generation and has the state moved to them.
void GenerationMachine::begin_switch(double now, Purpose purpose, double by, double answer_by,
                                     bool is_growth_limit) {
  LiveSwitch::Order order;
  order.before = *in<Running>();
  order.next = planner_.next(run_);
  drop_unfit_plan(order.next);
  order.what = {run_.generation, ++run_.last_generation, purpose, now, by};
  order.answer_by = answer_by;
  order.is_growth_limit = is_growth_limit;
  action::StartWorkers start = start_of(order.what.to, order.next);
  phase_ = LiveSwitch(std::move(order), {settings_.switch_timeout_s, settings_.end_timeout_s},
                      std::move(start), run_, out_, pace_);
  set_state(purpose == Purpose::grow     ? JobState::ready
            : purpose == Purpose::replan ? JobState::switching
                                         : JobState::draining);
}

/// Keeps the order until nothing else changes the workers: programs of the generation before leave
/// within `end_timeout_s`, and those of the first one may still be loading.
void GenerationMachine::on(double now, const control::Replan& order) {
  if (is<Over>() || is<Ending>()) return refuse_plan("the job is ending");
  if (!settings_.live) return refuse_plan("only live mode changes plans of a running program");
  ordered_ = order;
  planner_.refuse({});
  advance(now);
  if (ordered_)
    out_.say("another plan is asked for; it is run once the GPUs are no longer changing");
}

/// Switches the same workers to the plan that was ordered, as soon as that can be done.
void GenerationMachine::run_ordered(double now) {
  if (!ordered_ || choose(now, Purpose::replan).strategy != Strategy::live ||
      leaving_.is_pending() || is_failing() || run_.drain_by() || !run_.workers.others().empty() ||
      is_warming() || joiners_wait())
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

/// Refuses a plan that was ordered; its owner reads why in `swell jobs`.
void GenerationMachine::refuse_plan(const std::string& why) {
  ordered_.reset();
  planner_.refuse(why);
  switched_ = "another plan is not run: " + why;
  out_.say(switched_);
  out_.note("replan-refused", Json::object({{"reason", why}}));
  out_.add(action::Tell{status()});
}

void GenerationMachine::on(double now, const event::Switching& switching) {
  LiveSwitch* one = in<LiveSwitch>();
  if (one == nullptr || one->order().what.to != switching.generation ||
      !one->enter(now, switching.phase))
    return;
  if (one->order().what.purpose == Purpose::grow) set_state(JobState::switching);
}

void GenerationMachine::on(double now, const event::LetGo& let_go) {
  LiveSwitch* one = in<LiveSwitch>();
  if (one == nullptr || one->order().what.to != let_go.generation || !one->let_go(now)) return;
  handle(now, std::exchange(one->deferred(), {}));
}

/// Returns whether the worker leaves with the switch under way, and was told so.
bool GenerationMachine::was_let_go(WorkerId worker) const {
  const LiveSwitch* one = in<LiveSwitch>();
  return one != nullptr && one->was_let_go(worker);
}

/// Keeps an event for the end of a switch under way; see LiveSwitch::defer(). Returns false if
/// there is no switch.
bool GenerationMachine::defers(DeferredEvent event, bool spoils, CallOffCause cause) {
  LiveSwitch* one = in<LiveSwitch>();
  if (one != nullptr) one->defer(std::move(event), spoils, cause);
  return one != nullptr;
}

/// Handles the events that waited for the outcome of a switch. REQUIRES: it is known, or the
/// leaving workers were let go.
void GenerationMachine::handle(double now, DeferredEvents events) {
  events.drain([&](const auto& one) { on(now, one); });
}

void GenerationMachine::on(double now, const WorkerReady& ready) {
  WorkerState& worker = run_.workers[ready.worker];
  worker.ready = worker.present;
  advance(now);
}

void GenerationMachine::on(double now, const RestartRequested& request) {
  leave_and_return(now, request.asks);
}

void GenerationMachine::on(double now, const event::Switched& switched) {
  const int generation = switched.generation;
  const SwitchOutcome& how = switched.outcome;
  LiveSwitch* current = in<LiveSwitch>();
  if (current == nullptr || current->order().what.to != generation) {
    // The commit took too long: it is certain, but the lost workers are not known yet.
    if (how.committed && generation == run_.generation && is<Running>()) lose_silent(now, how.lost);
    return;
  }
  const Reconfiguration what = current->order().what;
  if (current->failures().waits(signals_, what.since, now, how)) return;
  SwitchOutcome outcome = how;
  const std::optional<CalledOff>& called_off = current->progress().called_off();
  if (!outcome.committed && outcome.code == ErrorCode::cancelled)
    outcome.called_off_for(called_off ? called_off->why : std::string());
  // If a user's signal ended its programs, the failure says nothing about the switch itself.
  const int signal = outcome.committed ? 0 : current->failures().signal(signals_, what.since, now);
  const bool for_signal = signal != 0;
  if (for_signal) outcome.called_off_for(fmt::format("Slurm sent the job {}", signal_name(signal)));
  LiveSwitch one = std::move(*current);
  phase_ = one.order().before;
  const SwitchEnd end = one.end(now, outcome);
  switched_ = outcome.brief;
  if (end == SwitchEnd::committed) switch_committed(now, outcome);
  else switch_aborted(now, one, outcome, end, for_signal);
  if (is<Running>()) set_state(is_warming() ? JobState::warming : JobState::active);
  handle(now, std::move(one.deferred()));
  lose_silent(now, outcome.lost);
  // After the deferred events, which may report the training's end: programs that are asked to
  // leave are started again. An outdated switch is followed by another once its programs have left.
  if (!for_signal && end != SwitchEnd::committed && what.purpose != Purpose::grow &&
      is<Running>() && (!one.progress().is_outdated() || end == SwitchEnd::silent) &&
      (run_.all_train() || (is_failing() && run_.shims_are_there()))) {
    reclaim_by_leaving(now, "no other switch is tried");
    if (is<Restart>()) code_ = 0;  // a program that failed is started again, too
  }
  advance(now);
}

void GenerationMachine::switch_committed(double now, const SwitchOutcome& outcome) {
  end_growth();
  planner_.drop();
  in<Running>()->since = now;
  progress_.begin(now);
  stopped_s_ = outcome.stopped_s;
}

/// Handles a failed switch: the programs of the old generation train on if they can.
void GenerationMachine::switch_aborted(double now, const LiveSwitch& one,
                                       const SwitchOutcome& outcome, SwitchEnd end,
                                       bool for_signal) {
  Running& running = *in<Running>();
  progress_.rest(now);
  if (for_signal) running.settles_at = now + settings_.blame_s;
  if (planner_.wants()) planner_.refuse("its switch was called off: " + outcome.why);
  planner_.drop();
  switch (end) {
    case SwitchEnd::lent_left:
      out_.say(
          "live mode: the switch failed when lent workers had left already; the run goes on from its "
          "last snapshot or checkpoint: " +
          outcome.why);
      begin_restart(now, Purpose::give_back, now);
      break;
    case SwitchEnd::state_released:
      out_.say(
          "live mode: the switch failed between its chunks; the run goes on from the snapshot that was "
          "taken of its step: " +
          outcome.why);
      begin_restart(now, Purpose::give_back, now);
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
  // A switch that failed by itself would fail again, so growth pauses.
  const std::optional<CalledOff>& called_off = one.progress().called_off();
  if (one.order().what.purpose != Purpose::grow || end == SwitchEnd::lacks_room || for_signal ||
      (called_off && !called_off->blames_growth()))
    return;
  pause_growth(now, "a live switch failed: " + outcome.why);
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job);
        each != nullptr && each->up && !run_.takes_part(*each))
      reclaim(now, *each, outcome.why);
}

/// Gives up workers whose shims did not answer the commit, as after a loss of their connection:
/// their programs may wait for the commit for ever.
void GenerationMachine::lose_silent(double now, const std::vector<WorkerId>& workers) {
  for (const WorkerId id : workers) {
    if (!run_.workers[id].running) continue;
    out_.add(action::SignalWorkers{{id}, SIGKILL, run_.generation});
    on(now, event::Lost{id});
  }
}

/// Gives GPUs back, by a switch to the other GPUs or by a restart. REQUIRES: lent GPUs that take
/// part are asked back.
void GenerationMachine::give_back_lent(double now) {
  const Choice choice = choose(now, Purpose::give_back);
  if (choice.strategy == Strategy::restart) return reclaim_by_leaving(now, choice.why);
  const double by = *run_.drain_by();
  begin_switch(now, Purpose::give_back, now + (by - now) * settings_.live_share, by);
}

/// Asks the workers to leave for a reclaim, as in restart mode. REQUIRES: the phase is Running.
void GenerationMachine::reclaim_by_leaving(double now, const std::string& why) {
  const auto by = run_.drain_by();
  if (!by) return;
  out_.say(fmt::format("live mode: {}; the workers are asked to leave", why));
  begin_restart(now, Purpose::give_back, *by);
}

void GenerationMachine::on(double now, const event::Stopped& stopped) {
  if (leaving_.answered(stopped.generation, stopped.step, stopped.untold)) advance(now);
}

}  // namespace swell::launcher
