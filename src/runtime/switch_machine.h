// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/messages.h"

namespace swell::runtime {

/// The two phases of a switch from one epoch to the next, without sockets or clock: told what each
/// shim answered, it says what to ask all of them next. Prepare, quiesce, move and commit go to all
/// shims of both epochs; one failure before the commit is an abort of all; after it there is no way
/// back, and a failure is a lost worker of the new epoch. Where the bound of memory is too small,
/// all prepare again, in chunks: then secure follows quiesce, and each chunk is a round of move.
class SwitchMachine {
 public:
  enum class Phase { prepare, quiesce, secure, move, commit, committed, aborted };
  static const char* to_text(Phase phase) noexcept;

  /// `step`: of the state, where no program has to stop for it; kNoStep: the shims say.
  explicit SwitchMachine(std::size_t shims, std::uint64_t step = kNoStep)
      : answered_(shims), let_go_(shims), step_(step) {}

  Phase phase() const noexcept { return phase_; }
  bool is_over() const noexcept { return phase_ == Phase::committed || phase_ == Phase::aborted; }
  /// Whether the shim has yet to answer in this phase.
  bool is_awaited(std::size_t shim) const noexcept { return !is_over() && !answered_[shim]; }

  /// Answers, each in its own phase. The digests must be equal. Steps that are not kNoStep are
  /// where programs stand, or, if `is_late`, what a program had passed when it was told to stop;
  /// unless all stand at the same, all are asked again for a later one: a new round().
  void prepared(std::size_t shim, const Prepared& answer);
  void quiesced(std::size_t shim, std::uint64_t step, bool is_late = false);
  void secured(std::size_t shim);
  void moved(std::size_t shim);
  void committed(std::size_t shim);
  /// Calls it off at the last moment. REQUIRES: no shim was told to commit but those let go.
  void veto(const Error& why);
  /// Told to commit before the others: it is asked nothing more. REQUIRES: the phase is move, and
  /// it has answered.
  void let_go(std::size_t shim) { let_go_[shim] = true; }
  /// A refusal, a lost connection, or no answer within the time limit.
  void failed(std::size_t shim, const std::string& why);

  /// Has all prepare again once all have answered. REQUIRES: the phase is prepare.
  void use_chunks() noexcept { in_chunks_ = true; }
  /// The shim has no room for all at once: the same. REQUIRES: the phase is prepare, in its first
  /// round.
  void lacks_room(std::size_t shim);
  bool in_chunks() const noexcept { return in_chunks_; }
  /// Number of chunks; known from the second round of prepare.
  std::uint32_t chunks() const noexcept { return chunks_; }
  /// Returns the chunk that is moved now, or was moved last.
  std::uint32_t chunk() const noexcept { return chunk_; }

  /// How often the shims have been asked the same again: to prepare in chunks, to stop at a later
  /// step than before, to move the next chunk.
  int round() const noexcept { return round_; }
  /// The boundary at which all stopped. REQUIRES: the phase is move or later, and not aborted.
  std::uint64_t step() const noexcept { return step_; }
  /// The first failure; empty: there was none.
  const std::string& why() const noexcept { return why_; }
  /// Returns the kind of that failure: that of a veto, else `failed`.
  ErrorCode code() const noexcept { return code_; }
  /// Shims that did not answer the commit.
  const std::vector<std::size_t>& lost() const noexcept { return lost_; }

 private:
  void count(std::size_t shim);
  void abort(std::string why);
  Phase phase_ = Phase::prepare;
  std::vector<bool> answered_, let_go_;
  std::optional<std::uint64_t> digest_;
  std::uint64_t step_ = kNoStep;
  int round_ = 0;
  bool in_chunks_ = false, prepares_in_chunks_ = false;
  std::uint32_t chunks_ = 0, chunk_ = 0;
  bool is_uneven_ = false;  ///< in this round: not all stand at one step
  std::string why_;
  ErrorCode code_ = ErrorCode::failed;
  std::vector<std::size_t> lost_;
};

}  // namespace swell::runtime
