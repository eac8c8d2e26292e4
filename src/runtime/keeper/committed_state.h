// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/state/roster.h"
#include "runtime/transport/transport.h"

namespace swell::runtime {

/// The training state of the committed generation, as one shim holds it: where its tensors stand,
/// and whether they are those of one step. It changes as a whole: when a generation begins, is
/// committed or is lost, and when its program ends. Does not free memory: the caller does.
class CommittedState {
 public:
  std::uint64_t generation() const noexcept { return generation_; }
  const std::vector<Held>& table() const noexcept { return table_; }
  /// Returns whether this shim has a part of the state.
  bool is_held() const noexcept { return is_held_; }
  /// Returns whether parts of the state are of different steps, or lost.
  bool is_torn() const noexcept { return is_torn_; }
  /// Returns the step at which the last program ended, or that was current at the commit.
  std::uint64_t step() const noexcept { return step_; }
  /// Returns the last profile that the generation's program reported; empty: none.
  const std::string& profile() const noexcept { return profile_; }
  void set_profile(std::string profile) { profile_ = std::move(profile); }
  /// Returns whether a tensor of this state in `memory` has the source of `run`.
  bool covers(const Run& run, Memory memory) const;

  /// Removes all tensors, before those of a first generation are added. Returns the removed
  /// tensors, whose memory the caller frees.
  std::vector<Held> clear();
  /// Adds a tensor of the generation that is about to begin.
  void add(Held held) { table_.push_back(std::move(held)); }
  /// Begins the generation, with new state in the tensors that were added.
  void begin(std::uint64_t generation);
  /// Replaces the last generation by this one, with the state of `step`. `is_held`: this shim has a
  /// part of that state. Returns the last generation's tensors, whose memory the caller frees.
  std::vector<Held> commit(std::uint64_t generation, std::vector<Held> table, bool is_held,
                           std::uint64_t step);
  /// Records that the generation's program has ended: at the boundary of `step`, or, unless
  /// `at_boundary`, within the step after it, so that the state may be half written (is_torn()).
  void program_ended(std::uint64_t step, bool at_boundary) noexcept;
  /// Records that a part of the state is lost. `step`: the last step of the program, if one trains.
  /// Returns the tensors, whose memory the caller frees.
  std::vector<Held> lose(std::optional<std::uint64_t> step);

 private:
  std::uint64_t generation_ = 0;
  std::vector<Held> table_;
  bool is_held_ = false, is_torn_ = false;
  std::uint64_t step_ = 0;
  std::string profile_;
};

}  // namespace swell::runtime
