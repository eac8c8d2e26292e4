// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/coordinator/switch_machine.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace swell::runtime {

const char* to_text(SwitchMachine::Phase phase) noexcept {
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
    return abort(Error("no shim of the old plan has stopped at a step"));
  phase_ = phase_ == Phase::quiesce && !in_chunks_
               ? Phase::move
               : static_cast<Phase>(static_cast<int>(phase_) + 1);
  if (!is_over(phase_)) answered_ = let_go_;
}

void SwitchMachine::abort(Error why) {
  phase_ = Phase::aborted;
  failure_ = std::move(why);
}

void SwitchMachine::prepared(std::size_t shim, const Prepared& answer) {
  if (phase_ != Phase::prepare || answered_[shim]) return;
  if (digest_.value_or(answer.digest) != answer.digest)
    return abort(Error(fmt::format("shim {} has another migration plan: {:016x}, not {:016x}", shim,
                                   answer.digest, *digest_)));
  digest_ = answer.digest;
  if (prepares_in_chunks_) chunks_ = answer.chunks;
  count(shim);
}

void SwitchMachine::use_chunks(std::optional<std::size_t> without_room) {
  if (without_room && (phase_ != Phase::prepare || prepares_in_chunks_ || answered_[*without_room]))
    return;
  in_chunks_ = true;
  if (without_room) count(*without_room);
}

void SwitchMachine::quiesced(std::size_t shim, std::uint64_t step, bool is_late) {
  if (phase_ != Phase::quiesce || answered_[shim]) return;
  if (is_late || (step != kNoStep && step_ != kNoStep && step != step_)) is_uneven_ = true;
  if (step != kNoStep) step_ = step;
  count(shim);
}

void SwitchMachine::done(std::size_t shim, Phase phase) {
  if (phase_ == phase && !answered_[shim]) count(shim);
}

void SwitchMachine::veto(const Error& why) {
  if (!is_over(phase_)) abort(why);
}

void SwitchMachine::failed(std::size_t shim, const std::string& why) {
  if (is_over(phase_) || answered_[shim]) return;
  const Error failure(fmt::format("shim {}: {}", shim, why));
  if (phase_ != Phase::commit) return abort(failure);
  // All shims have moved when commit is sent, so the new generation holds, without this shim.
  if (!failure_) failure_ = failure;
  lost_.push_back(shim);
  count(shim);
}

}  // namespace swell::runtime
