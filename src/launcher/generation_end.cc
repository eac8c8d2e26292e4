// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: workers checkpoint and leave before the job's own end, so that
// its next run goes on; or on the user's request, and are started again at once.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "launcher/generation_machine.h"
#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

namespace {

constexpr double kEndMargin_s = 5;  // for swellrun to end, and to have the job requeued

}  // namespace

/// Limits the time before the end to half of the run's time: a run that had to leave earlier could
/// do nothing but leave, again and again.
void GenerationMachine::on(double now, const event::JobEnds& ends) {
  if (!settings_.before_end_s || *settings_.before_end_s <= 0) return;
  const std::optional<double> at = limit_.ends_at = ends.at;
  if (!at || limit_.before_s >= 0) return;
  limit_.before_s = std::min(*settings_.before_end_s, std::max(0.0, *at - now) / 2);
  if (limit_.before_s < *settings_.before_end_s)
    out_.say(fmt::format(
        "--before-end={:g}: the job ends in {:.0f} s; its workers leave {:.0f} s before",
        *settings_.before_end_s, *at - now, limit_.before_s));
}

/// Returns when the workers are asked to leave; nullopt: they have been, or there is no limit.
std::optional<double> GenerationMachine::leaves_at() const {
  if (!limit_.ends_at || limit_.before_s < 0 || is<Ending>() || is<Over>()) return std::nullopt;
  return *limit_.ends_at - limit_.before_s;
}

/// `asks`: the workers have not been sent the restart signal yet.
void GenerationMachine::leave_before_end(double now, const std::string& why, bool asks) {
  if (is<Ending>() || is<Over>()) return;
  const double end = limit_.ends_at.value_or(now + settings_.restart_timeout_s + kEndMargin_s);
  const double by = now + std::max((end - now) / 2, end - now - kEndMargin_s);
  out_.say(fmt::format("{}: the workers leave, and swellrun ends with {}", why, kRequeueCode));
  out_.note("leaving-before-end", Json::object({{"within_s", by - now}}));
  const bool live = is_live(), were_asked = is<Restart>();
  if (is<LiveSwitch>()) out_.add(action::CallOffLive{});
  begin_ending({by, false, true}, now);
  if (asks && !were_asked && !run_.workers.running().empty()) leaving_.ask(now, by - now, live);
  advance(now);
}

/// Handles the restart signal from the user, which does not ask for the end: workers that leave for
/// it are started again, and those that use it for something else train on. `asks`: they have not
/// been sent it yet.
void GenerationMachine::leave_and_return(double now, bool asks) {
  if (defers(RestartRequested{asks}, true)) return;
  const std::vector<WorkerId> workers = run_.workers.running();
  if (workers.empty() || is<Restart>() || is<Ending>()) return;
  // A program that dies of a signal that it does not handle fails as under srun; if some have ended
  // the training ends.
  if (is_failing() || is_ending_by_itself() || (!asks && !run_.all_listen())) {
    if (asks) out_.add(action::SignalWorkers{workers, settings_.restart_signal});
    return;
  }
  out_.say(fmt::format("{}: the workers that leave are started again from their checkpoint",
                       signal_name(settings_.restart_signal)));
  begin_restart(now, Purpose::user_restart, now + settings_.restart_timeout_s, asks);
}

/// Returns why the workers cannot be asked to leave for a requeue; empty: they can.
std::string GenerationMachine::why_not_requeue() const {
  if (!is<Running>() || is_failing() || is_ending_by_itself() || leaving_.is_pending() ||
      !run_.workers.others().empty() || !run_.all_train())
    return "its workers are changing, or end";
  if (!run_.companions.held().empty()) return "it still has lent GPUs";
  if (!run_.all_listen())
    return fmt::format("its program does not handle {}, so that it would not save",
                       signal_name(settings_.restart_signal));
  return {};
}

/// Workers that leave, or have left, for an earlier order count for this one, too.
void GenerationMachine::on(double now, const control::Requeue& order) {
  if (order.called_off) {
    if (order.order == requeue_.order) stay(now, order.reason);
    return;
  }
  requeue_ = order;
  const Gathering* left = in<Gathering>();
  const bool have_left = left != nullptr && left->requeued_by;
  const Restart* restart = in<Restart>();
  const bool leave = restart != nullptr && restart->what().purpose == Purpose::requeue;
  not_requeued_ = have_left || leave ? "" : why_not_requeue();
  if (have_left) return wait_for_requeue(now);
  if (leave || !not_requeued_.empty()) return out_.add(action::Tell{status()});
  out_.say(fmt::format("{}: the workers save and leave", order.reason));
  begin_restart(now, Purpose::requeue, now + settings_.restart_timeout_s);
  advance(now);
}

/// REQUIRES: the phase is Gathering.
void GenerationMachine::wait_for_requeue(double now) {
  in<Gathering>()->requeued_by = now + requeue_.wait_s;
  in<Gathering>()->by = now + requeue_.wait_s + settings_.warm_timeout_s;
  out_.add(action::Tell{status()});
}

/// Handles that the job is not requeued: workers that have left are started again at once, and
/// workers that are leaving are started again when they have left.
void GenerationMachine::stay(double now, const std::string& why) {
  requeue_.wait_s = 0;
  if (Gathering* left = in<Gathering>(); left != nullptr && left->requeued_by) {
    left->requeued_by.reset();
    left->by = now + settings_.warm_timeout_s;
    not_requeued_ = why;
    out_.say(fmt::format("{}: training goes on where it was", why));
  }
  advance(now);
}

}  // namespace swell::launcher
