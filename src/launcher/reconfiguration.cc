// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/reconfiguration.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::launcher {

const char* SwitchOutcome::phase_text() const noexcept {
  return phase ? runtime::to_text(*phase) : "";
}

void SwitchOutcome::called_off_for(const std::string& reason) {
  why = reason;
  brief = fmt::format("called off in {}: {}", phase_text(), reason);
  summary = "the switch was called off: " + reason;
}

bool SwitchProgress::enter(double now, SwitchPhase phase) {
  if (phase == SwitchPhase::commit && is_committing()) return false;
  in_chunks_ = in_chunks_ || phase == SwitchPhase::secure;
  phase_ = std::max(phase_, phase);
  if (phase != SwitchPhase::prepare && !prepared_at_) prepared_at_ = now;
  return true;
}

bool SwitchProgress::call_off(CallOffCause cause, std::string why) {
  if (called_off_) return false;
  called_off_ = CalledOff{cause, std::move(why)};
  return true;
}

SwitchEnd SwitchProgress::end(const SwitchOutcome& outcome, Purpose purpose,
                              bool all_listen) const {
  if (outcome.committed) return SwitchEnd::committed;
  if (has_let_go_) return SwitchEnd::lent_left;
  if (in_chunks_ && phase_ >= SwitchPhase::move) return SwitchEnd::state_released;
  // A rank that missed the deadline to stop is unresponsive, even if the switch was cancelled.
  const bool was_slow = called_off_ && called_off_->cause == CallOffCause::too_slow;
  if (outcome.is_silent || (was_slow && outcome.phase == SwitchPhase::quiesce))
    return SwitchEnd::silent;
  if (purpose == Purpose::grow && outcome.lacks_room && all_listen) return SwitchEnd::lacks_room;
  return SwitchEnd::trains_on;
}

}  // namespace swell::launcher
