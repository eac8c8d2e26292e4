// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/keeper/committed_state.h"

#include <algorithm>
#include <utility>

namespace swell::runtime {

bool CommittedState::covers(const Run& run, Memory memory) const {
  return std::any_of(table_.begin(), table_.end(),
                     [&](const Held& held) { return held.memory == memory && held.covers(run); });
}

std::vector<Held> CommittedState::clear() { return std::exchange(table_, {}); }

void CommittedState::begin(std::uint64_t generation) {
  generation_ = generation;
  is_held_ = true;
  is_torn_ = false;
  profile_.clear();
}

std::vector<Held> CommittedState::commit(std::uint64_t generation, std::vector<Held> table,
                                         bool is_held, std::uint64_t step) {
  generation_ = generation;
  is_held_ = is_held;
  is_torn_ = false;
  step_ = step;
  profile_.clear();
  return std::exchange(table_, std::move(table));
}

void CommittedState::program_ended(std::uint64_t step, bool at_boundary) noexcept {
  is_torn_ = !at_boundary;
  step_ = step;
}

std::vector<Held> CommittedState::lose(std::optional<std::uint64_t> step) {
  is_held_ = false;
  is_torn_ = true;
  if (step) step_ = *step;
  return clear();
}

}  // namespace swell::runtime
