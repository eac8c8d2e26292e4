// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/coordinator/switch_machine.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace swell::runtime {

const char* SwitchMachine::to_text(Phase phase) noexcept {
  static constexpr const char* names[] = {"prepare", "quiesce",   "secure", "move",
                                          "commit",  "committed", "aborted"};
  return names[static_cast<int>(phase)];
}

void SwitchMachine::count(std::size_t shim) {
  answered_[shim] = true;
  if (!std::all_of(answered_.begin(), answered_.end(), [](bool one) { return one; })) return;
  bool is_again = false;
  if (phase_ == Phase::prepare && in_chunks_ && !std::exchange(prepares_in_chunks_, true)) {
    digest_.reset();
    is_again = true;
  } else if (phase_ == Phase::quiesce && std::exchange(is_uneven_, false)) {
    step_ = kNoStep;
    is_again = true;
  } else if (phase_ == Phase::move && chunk_ + 1 < chunks_) {
    ++chunk_;
    is_again = true;
  }
  if (is_again) {
    ++round_;
    answered_.assign(answered_.size(), false);
    return;
  }
  if (phase_ == Phase::quiesce && step_ == kNoStep)
    return abort("no shim of the old plan has stopped at a step");
  phase_ = phase_ == Phase::quiesce && !in_chunks_
               ? Phase::move
               : static_cast<Phase>(static_cast<int>(phase_) + 1);
  if (!is_over()) answered_ = let_go_;
}

void SwitchMachine::abort(std::string why) {
  phase_ = Phase::aborted;
  why_ = std::move(why);
}

void SwitchMachine::prepared(std::size_t shim, const Prepared& answer) {
  if (phase_ != Phase::prepare || answered_[shim]) return;
  if (digest_.value_or(answer.digest) != answer.digest)
    return abort(fmt::format("shim {} has another migration plan: {:016x}, not {:016x}", shim,
                             answer.digest, *digest_));
  digest_ = answer.digest;
  if (prepares_in_chunks_) chunks_ = answer.chunks;
  count(shim);
}

void SwitchMachine::lacks_room(std::size_t shim) {
  if (phase_ != Phase::prepare || prepares_in_chunks_ || answered_[shim]) return;
  use_chunks();
  count(shim);
}

void SwitchMachine::quiesced(std::size_t shim, std::uint64_t step, bool is_late) {
  if (phase_ != Phase::quiesce || answered_[shim]) return;
  if (is_late || (step != kNoStep && step_ != kNoStep && step != step_)) is_uneven_ = true;
  if (step != kNoStep) step_ = step;
  count(shim);
}

void SwitchMachine::secured(std::size_t shim) {
  if (phase_ == Phase::secure && !answered_[shim]) count(shim);
}

void SwitchMachine::moved(std::size_t shim) {
  if (phase_ == Phase::move && !answered_[shim]) count(shim);
}

void SwitchMachine::committed(std::size_t shim) {
  if (phase_ == Phase::commit && !answered_[shim]) count(shim);
}

void SwitchMachine::veto(const Error& why) {
  if (is_over()) return;
  code_ = why.code();
  abort(why.message());
}

void SwitchMachine::failed(std::size_t shim, const std::string& why) {
  if (is_over() || answered_[shim]) return;
  if (phase_ != Phase::commit) return abort(fmt::format("shim {}: {}", shim, why));
  // All shims have moved when commit is sent, so the new generation holds, without this shim.
  if (why_.empty()) why_ = fmt::format("shim {}: {}", shim, why);
  lost_.push_back(shim);
  count(shim);
}

}  // namespace swell::runtime
