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
/// committed or is lost, and when its program ends. Says where memory is, and frees none.
class CommittedState {
 public:
  std::uint64_t generation() const noexcept { return generation_; }
  const std::vector<Held>& table() const noexcept { return table_; }
  /// Whether this shim has a part of the state.
  bool is_held() const noexcept { return is_held_; }
  /// Whether parts of it are of different steps, or gone.
  bool is_torn() const noexcept { return is_torn_; }
  /// Step at which its last program ended, or at which it was committed.
  std::uint64_t step() const noexcept { return step_; }
  /// Last profile that its program reported; empty: none.
  const std::string& profile() const noexcept { return profile_; }
  void set_profile(std::string profile) { profile_ = std::move(profile); }
  /// Whether the run is part of one of its tensors.
  bool covers(const Run& run, Memory memory) const;

  /// Removes all tensors, before those of a first generation are added. @return them, for the
  /// caller to free.
  std::vector<Held> clear();
  /// Adds a tensor of the generation that is about to begin.
  void add(Held held) { table_.push_back(std::move(held)); }
  /// The generation begins, with new state in the tensors that were added.
  void begin(std::uint64_t generation);
  /// The generation has taken the place of the one before, with the state of `step`. `is_held`:
  /// this shim has a part of it. @return the tensors before, for the caller to free.
  std::vector<Held> commit(std::uint64_t generation, std::vector<Held> table, bool is_held,
                           std::uint64_t step);
  /// Its program has ended, at the boundary of `step` or within a step: half of that may be
  /// written.
  void program_ended(std::uint64_t step, bool at_boundary) noexcept;
  /// A part of it is gone. `step`: that of its program, where one trains. @return its tensors, for
  /// the caller to free.
  std::vector<Held> lose(std::optional<std::uint64_t> step);

 private:
  std::uint64_t generation_ = 0;
  std::vector<Held> table_;
  bool is_held_ = false, is_torn_ = false;
  std::uint64_t step_ = 0;
  std::string profile_;
};

}  // namespace swell::runtime
