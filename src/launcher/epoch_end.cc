// SPDX-License-Identifier: GPL-2.0-or-later
// Of the epoch machine: the workers leave before the job's own end, so that its next run goes on.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "launcher/epoch_machine.h"

namespace swell::launcher {

namespace {

constexpr double kEndMargin_s = 5;  // for swellrun to end, and to have the job requeued

}  // namespace

/// A run that would have to leave in the first half of its time could do nothing but leave, again
/// and again.
void EpochMachine::job_ends(double now, std::optional<double> at) {
  if (!settings_.before_end_s || *settings_.before_end_s <= 0) return;
  limit_.ends_at = at;
  if (!at || limit_.before_s >= 0) return;
  limit_.before_s = std::min(*settings_.before_end_s, std::max(0.0, *at - now) / 2);
  if (limit_.before_s < *settings_.before_end_s)
    say(fmt::format(
        "--before-end={:g}: the job ends in {:.0f} s; its workers leave {:.0f} s before",
        *settings_.before_end_s, *at - now, limit_.before_s));
}

/// When the workers are asked to leave; none: they have been, or the job has no limit.
std::optional<double> EpochMachine::leaves_at() const {
  if (!limit_.ends_at || limit_.before_s < 0 || is<Ending>() || is<Over>()) return std::nullopt;
  return *limit_.ends_at - limit_.before_s;
}

/// `asks`: they have not been sent the signal yet.
void EpochMachine::leave_before_end(double now, const std::string& why, bool asks) {
  if (is<Ending>() || is<Over>()) return;
  const double end = limit_.ends_at.value_or(now + settings_.restart_timeout_s + kEndMargin_s);
  const double by = now + std::max((end - now) / 2, end - now - kEndMargin_s);
  say(fmt::format("{}: the workers leave, and swellrun ends with {}", why, kRequeueCode));
  note("leaving-before-end", Json::object({{"within_s", by - now}}));
  const bool live = is_live(), were_asked = is<Leaving>();
  if (is<Switching>()) act(action::CallOffLive{});
  begin_ending({by, false, true}, now);
  if (asks && !were_asked && !running().empty()) ask_to_leave(now, by - now, live);
  advance(now);
}

}  // namespace swell::launcher
