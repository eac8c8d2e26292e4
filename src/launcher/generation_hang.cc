// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: restarts a training that makes no steps any more.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>

#include "launcher/generation_machine.h"

namespace swell::launcher {

using control::JobState;

void GenerationMachine::on(double now, const event::MadeSteps& made) {
  if (made.generation != run_.generation) return;
  progress_.step(now, made.steps);
  if (made.steps > 0) pace_.stepped(now);
}

void GenerationMachine::on(double now, const event::Wrote&) {
  if (is<Running>()) progress_.output(now);
}

void GenerationMachine::on(double now, const event::StoodStill&) { progress_.rest(now); }

/// Returns when the training counts as hung without a further step; nullopt: another event is
/// awaited, it cannot be judged, or the program is not known to resume from a checkpoint. It does
/// if it handles the restart signal, uses the runtime, or its owner says so by --recover.
std::optional<double> GenerationMachine::hangs_at() const {
  const Running* one = in<Running>();
  if (one == nullptr || one->failure || one->ask_at || !one->not_begun.empty() ||
      leaving_.is_pending() || recovery_ || !run_.all_train())
    return std::nullopt;
  if (!is_ready(false) && settings_.recover_s <= 0) return std::nullopt;
  return progress_.hangs_at();
}

/// Starts the program again from its last checkpoint, without the lent GPUs if it has any. Its
/// workers are asked to leave first, so that those that only pause lose nothing.
void GenerationMachine::restart_hung(double now) {
  if (!progress_.is_heard(now)) return progress_.rest(now);  // the job is suspended
  const std::string why = progress_.reason(now);
  const bool has_lent = std::any_of(run_.companions.held().begin(), run_.companions.held().end(),
                                    [](const HeldCompanion& each) { return !each.reclaimed; });
  out_.note("hung", Json::object({{"reason", why}, {"gives_back", has_lent}}));
  if (restarts_too_often(now) && !has_lent) {
    out_.say(fmt::format("{}: it was restarted {} times within {:.0f} s; the run ends", why,
                         settings_.max_restarts, settings_.restart_window_s));
    code_ = std::max(code_, 1);
    return end(now, SIGTERM, now + settings_.end_timeout_s, true);
  }
  out_.say(why + (has_lent ? ": on with the job's own GPUs, from the last checkpoint"
                           : ": it is started again, from its last checkpoint"));
  progress_.restarted();
  pause_growth(now, why);
  const double by = now + settings_.restart_timeout_s;
  begin_restart(now, Purpose::hang, by);
  for (const JobId job : run_.companions.jobs())
    if (HeldCompanion* each = run_.companions.find(job); each != nullptr && !each->reclaimed) {
      each->leave_by = by;
      reclaim(now, *each, why);
    }
}

}  // namespace swell::launcher
