// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/live_switch.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <utility>

#include "core/count_of.h"
#include "launcher/signals.h"

namespace swell::launcher {

namespace {

constexpr double kNoticeFollows_s = 0.5;  // from a program's end to its shim's notice of a signal

std::vector<WorkerId> workers_of(const RankAssignment& assignment) {
  std::vector<WorkerId> workers;
  for (const Seat& seat : assignment.seats) workers.push_back(seat.worker);
  return workers;
}

bool has(const RankAssignment& assignment, WorkerId worker) {
  return std::any_of(assignment.seats.begin(), assignment.seats.end(),
                     [worker](const Seat& seat) { return seat.worker == worker; });
}

}  // namespace

int SwitchFailures::signal(const SignalRecord& signals, double since, double now) const {
  for (const Exit& exit : exits_)
    if (const int signal = signals.cause_of(exit, now); signal != 0) return signal;
  // Its programs may be ending for the signal, and report that later.
  for (const int signal : signals.sent_since(since))
    if (is_end_signal(signal)) return signal;
  return 0;
}

bool SwitchFailures::waits(const SignalRecord& signals, double since, double now,
                           const SwitchOutcome& outcome) {
  const auto may_be_sent = [](const Exit& exit) {
    const int signal = exit.signal != 0 ? exit.signal : exit.code - 128;
    return is_end_signal(signal) || signal == SIGUSR1 || signal == SIGUSR2;
  };
  if (outcome.committed || judged_at_ || signal(signals, since, now) != 0 ||
      std::none_of(exits_.begin(), exits_.end(), may_be_sent))
    return false;
  judged_at_ = now + kNoticeFollows_s;
  outcome_ = outcome;
  return true;
}

LiveSwitch::LiveSwitch(Order order, Settings settings, action::StartWorkers start, RunState& run,
                       ActionList& out, LivePace& pace)
    : order_(std::move(order)), settings_(settings), run_(&run), out_(&out), pace_(&pace) {
  const Reconfiguration& what = order_.what;
  pace.switches();
  to_running_ = start.none_is_new =
      std::all_of(start.workers.begin(), start.workers.end(),
                  [&run](const auto& each) { return run.workers[each.first].running; });
  for (const auto& [id, environment] : start.workers) {
    run.workers.others()[{what.to, id}] = kNever;
    run.workers[id].ready = false;
  }
  action::SwitchLive move{what.to, workers_of(run.assignment), workers_of(order_.next),
                          what.purpose == Purpose::give_back ? what.deadline - what.since : 0};
  out.note("switch-prepare", Json::object({{"next", what.to}, {"to", move.to.size()}}));
  out.add(std::move(start));
  out.add(std::move(move));
}

bool LiveSwitch::enter(double now, SwitchPhase phase) {
  const bool was_prepared = progress_.is_prepared();
  if (!progress_.enter(now, phase)) return false;
  out_->note(std::string("switch-") + runtime::to_text(phase),
             Json::object({{"next", order_.what.to}}));
  if (was_prepared || !progress_.is_prepared()) return false;
  pace_->started(now - order_.what.since, to_running_);
  return true;
}

bool LiveSwitch::let_go(double now) {
  if (!progress_.let_go()) return false;
  out_->note("switch-let-go", Json::object({{"next", order_.what.to}}));
  for (const Seat& seat : run_->assignment.seats) {
    if (!was_let_go(seat.worker) || !std::exchange(run_->workers[seat.worker].running, false))
      continue;
    run_->workers.others()[{run_->generation, seat.worker}] =
        std::min(now + settings_.end_timeout_s, order_.answer_by);
  }
  order_.what.deadline = now + settings_.switch_timeout_s;
  order_.is_growth_limit = false;
  order_.answer_by = order_.what.deadline + settings_.end_timeout_s;
  return true;
}

bool LiveSwitch::was_let_go(WorkerId worker) const {
  return progress_.has_let_go() && !has(order_.next, worker);
}

void LiveSwitch::call_off(CallOffCause cause, const std::string& why) {
  if (!progress_.call_off(cause, why)) return;
  out_->note("switch-called-off", Json::object({{"next", order_.what.to}, {"reason", why}}));
  out_->add(action::CallOffLive{});
}

void LiveSwitch::make_way(double by) {
  order_.answer_by = std::min(order_.answer_by, by);
  for (const HeldCompanion& each : run_->companions.held()) {
    if (!each.reclaimed || !has_seat(order_.next, each)) continue;
    progress_.outdate();
    return call_off(CallOffCause::gpus_reclaimed, "GPUs go back: " + each.reason);
  }
}

void LiveSwitch::defer(DeferredEvent event, bool spoils, CallOffCause cause) {
  deferred_.add(std::move(event));
  if (spoils || !progress_.is_prepared()) call_off(cause, "a worker has ended");
}

void LiveSwitch::add_next(std::vector<WorkerId>& workers) const {
  for (const Seat& seat : order_.next.seats)
    if (std::find(workers.begin(), workers.end(), seat.worker) == workers.end())
      workers.push_back(seat.worker);
}

double LiveSwitch::late_at() const noexcept {
  return progress_.called_off() ? order_.answer_by
                                : std::min(order_.what.deadline, order_.answer_by);
}

std::optional<SwitchOutcome> LiveSwitch::late(const std::string& growth_limit) {
  if (!progress_.called_off()) {
    if (order_.is_growth_limit) call_off(CallOffCause::growth_limit, growth_limit);
    else call_off(CallOffCause::too_slow, "it took too long");
    return std::nullopt;
  }
  SwitchOutcome late;
  late.committed = progress_.is_committing();
  late.summary = late.brief = "not all shims have answered";
  if (!late.committed) late.why = late.summary = "the shims did not answer in time";
  return late;
}

SwitchEnd LiveSwitch::end(double now, const SwitchOutcome& outcome) {
  const SwitchEnd end = progress_.end(outcome, order_.what.purpose, run_->all_listen());
  Json details = outcome.details;
  details.set("next", order_.what.to);
  details.set("stopped_s", outcome.stopped_s);
  details.set("why", outcome.why);
  if (end == SwitchEnd::committed) {
    const std::size_t workers = run_->assignment.seats.size();
    commit(now);
    out_->say(fmt::format("live: from {} to {}, {}", workers,
                          count_of(run_->assignment.seats.size(), "worker"), outcome.summary));
    out_->note("switch-committed", std::move(details));
  } else {
    details.set("phase", outcome.phase_text());
    out_->note("switch-aborted", std::move(details));
    kill_next(now);
  }
  return end;
}

/// Makes the next generation the training one. Old programs that still run were told to end.
void LiveSwitch::commit(double now) {
  for (const Seat& seat : run_->assignment.seats) {
    if (was_let_go(seat.worker)) continue;
    run_->workers[seat.worker].running = false;
    const HeldCompanion* its = run_->companions.of_node(seat.worker.node);
    const double limit = its != nullptr && its->reclaimed ? its->leave_by : kNever;
    run_->workers.others()[{run_->generation, seat.worker}] =
        std::min(now + settings_.end_timeout_s, std::max(limit, now + 1));
  }
  run_->assignment = order_.next;
  run_->generation = order_.what.to;
  for (const Seat& seat : run_->assignment.seats) {
    run_->workers[seat.worker].running = true;
    run_->workers.others().erase({run_->generation, seat.worker});
  }
  if (const auto prepared_at = progress_.prepared_at()) pace_->moved(now - *prepared_at);
}

void LiveSwitch::kill_next(double now) {
  const std::optional<CalledOff>& called_off = progress_.called_off();
  if (called_off && called_off->cause == CallOffCause::too_slow && !progress_.is_prepared())
    pace_->started(now - order_.what.since, to_running_);
  std::vector<WorkerId> workers = workers_of(order_.next);
  for (const WorkerId id : workers)
    if (const auto each = run_->workers.others().find({order_.what.to, id});
        each != run_->workers.others().end())
      each->second = now + settings_.end_timeout_s;
  out_->add(action::SignalWorkers{std::move(workers), SIGKILL, order_.what.to});
}

}  // namespace swell::launcher
