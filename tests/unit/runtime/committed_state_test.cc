// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/keeper/committed_state.h"

#include <criterion/criterion.h>

using namespace swell::runtime;

namespace {

/// A tensor of `bytes` bytes at `at` in the arena.
Held held(std::uint64_t at, std::int64_t bytes) {
  Held held;
  held.entry.tensor.dtype = DType::u8;
  held.entry.part = Part::whole({bytes});
  held.memory = Memory::arena;
  held.at = at;
  return held;
}

}  // namespace

Test(committed_state, a_generation_begins_with_the_tensors_that_were_added) {
  CommittedState state;
  cr_assert_not(state.is_held());
  state.add(held(0, 100));
  state.add(held(4096, 100));
  cr_assert_not(state.is_held(), "it has not begun");
  state.begin(1);
  cr_assert(state.is_held() && !state.is_torn());
  cr_assert_eq(state.generation(), 1u);
  cr_assert_eq(state.table().size(), 2u);
}

Test(committed_state, a_commit_replaces_it_and_gives_back_what_is_to_be_freed) {
  CommittedState state;
  state.add(held(0, 100));
  state.begin(1);
  state.set_profile("{}");
  state.program_ended(7, false);
  const auto old = state.commit(2, {held(4096, 50)}, true, 9);
  cr_assert_eq(old.size(), 1u);
  cr_assert_eq(old[0].at, 0u);
  cr_assert_eq(state.table().at(0).at, 4096u);
  cr_assert_eq(state.generation(), 2u);
  cr_assert_eq(state.step(), 9u);
  cr_assert(!state.is_torn() && state.is_held());
  cr_assert(state.profile().empty(), "that was another generation's");
  state.commit(3, {}, false, 10);
  cr_assert_not(state.is_held(), "this shim is not in the new plan");
}

Test(committed_state, a_program_that_ends_within_a_step_tears_it) {
  CommittedState state;
  state.begin(1);
  state.program_ended(7, true);
  cr_assert_not(state.is_torn());
  cr_assert_eq(state.step(), 7u);
  state.program_ended(8, false);
  cr_assert(state.is_torn());
  cr_assert(state.is_held(), "the memory is not free");
}

Test(committed_state, what_is_lost_is_torn_and_the_step_is_its_programs) {
  CommittedState state;
  state.add(held(0, 100));
  state.begin(1);
  state.program_ended(7, true);
  cr_assert_eq(state.lose(std::nullopt).size(), 1u);
  cr_assert(state.is_torn() && !state.is_held() && state.table().empty());
  cr_assert_eq(state.step(), 7u);
  state.lose(12);
  cr_assert_eq(state.step(), 12u);
}

Test(committed_state, others_may_read_its_tensors_and_nothing_beside_them) {
  CommittedState state;
  state.add(held(4096, 100));
  state.begin(1);
  const auto covers = [&](std::uint64_t from, std::uint64_t bytes, Memory memory = Memory::arena) {
    Run run;
    run.from = from;
    run.bytes = bytes;
    return state.covers(run, memory);
  };
  cr_assert(covers(4096, 100));
  cr_assert(covers(4100, 10));
  cr_assert_not(covers(4096, 101));
  cr_assert_not(covers(4095, 10));
  cr_assert_not(covers(4096, 100, Memory::device));
}
