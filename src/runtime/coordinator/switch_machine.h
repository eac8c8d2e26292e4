// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// The two phases of a switch from one generation to the next, without sockets or clock: it is told
/// each shim's answer, and says what to ask all shims next. Prepare, quiesce, move and commit go to
/// all shims of both generations. One failure before the commit aborts the switch on all shims;
/// after the commit the switch holds, and a failed shim is a lost worker of the new generation. If
/// the bound of memory is too small, all shims prepare again, in chunks: then secure follows
/// quiesce, and each chunk is a round of move.
class SwitchMachine {
 public:
  enum class Phase { prepare, quiesce, secure, move, commit, committed, aborted };

  /// `step`: the state's step, if no program has to stop for the switch; kNoStep: the shims report
  /// it.
  explicit SwitchMachine(std::size_t shims, std::uint64_t step = kNoStep)
      : answered_(shims), let_go_(shims), step_(step) {}

  Phase phase() const noexcept { return phase_; }
  /// Returns whether the shim has yet to answer in this phase.
  bool is_awaited(std::size_t shim) const noexcept {
    return phase_ < Phase::committed && !answered_[shim];
  }

  /// Takes a shim's answer, each in its own phase. The digests must be equal. A step other than
  /// kNoStep is where the program stands, or, if `is_late`, the last boundary that it had passed
  /// when it was told to stop. Unless all programs stand at the same step, all are asked to stop at
  /// a later one, in a new round().
  void prepared(std::size_t shim, const Prepared& answer);
  void quiesced(std::size_t shim, std::uint64_t step, bool is_late = false);
  /// Takes the answer of a shim that has done its part of `phase`: secure, move or commit.
  void done(std::size_t shim, Phase phase);
  /// Aborts the switch at the last moment. REQUIRES: only shims of let_go() were told to commit.
  void veto(const Error& why);
  /// Marks a shim that was told to commit before the others: it is asked nothing more. REQUIRES:
  /// the phase is move, and the shim has answered.
  void let_go(std::size_t shim) { let_go_[shim] = true; }
  /// Takes a refusal, a lost connection, or a missing answer at the time limit.
  void failed(std::size_t shim, const std::string& why);

  /// Has all shims prepare again, in chunks, once all have answered. `without_room`: a shim whose
  /// answer is that it has too little memory to move everything at once. REQUIRES: the phase is
  /// prepare; with `without_room`, in its first round.
  void use_chunks(std::optional<std::size_t> without_room = std::nullopt);
  bool in_chunks() const noexcept { return in_chunks_; }
  /// Returns the chunk that is being moved, or was moved last.
  std::uint32_t chunk() const noexcept { return chunk_; }

  /// Returns how often the shims have been asked the same again: to prepare in chunks, to stop at a
  /// later step than before, to move the next chunk.
  int round() const noexcept { return round_; }
  /// Returns the boundary at which all stopped. REQUIRES: the phase is move or later, and the
  /// switch is not aborted.
  std::uint64_t step() const noexcept { return step_; }
  /// Returns the first failure, if there was one. Its code is that of a veto, otherwise `failed`.
  const std::optional<Error>& failure() const noexcept { return failure_; }
  /// Returns the shims that did not answer the commit.
  const std::vector<std::size_t>& lost() const noexcept { return lost_; }

 private:
  void count(std::size_t shim);
  void abort(Error why);
  Phase phase_ = Phase::prepare;
  std::vector<bool> answered_, let_go_;
  std::optional<std::uint64_t> digest_;
  std::uint64_t step_ = kNoStep;
  int round_ = 0;
  bool in_chunks_ = false, prepares_in_chunks_ = false;
  std::uint32_t chunks_ = 0, chunk_ = 0;
  bool is_uneven_ = false;  ///< in this round not all programs stand at one step
  std::optional<Error> failure_;
  std::vector<std::size_t> lost_;
};

const char* to_text(SwitchMachine::Phase phase) noexcept;
inline bool is_over(SwitchMachine::Phase phase) noexcept {
  return phase >= SwitchMachine::Phase::committed;
}

}  // namespace swell::runtime
