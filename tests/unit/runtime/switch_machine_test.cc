// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/coordinator/switch_machine.h"

#include <criterion/criterion.h>

using namespace swell::runtime;
using Phase = SwitchMachine::Phase;

namespace {

/// Three shims, of which the last is new; brought up to a phase.
SwitchMachine in(Phase phase) {
  SwitchMachine machine(3);
  for (std::size_t i = 0; i < 3 && phase > Phase::prepare; ++i) machine.prepared(i, {42, 0});
  for (std::size_t i = 0; i < 3 && phase > Phase::quiesce; ++i)
    machine.quiesced(i, i < 2 ? 10 : kNoStep);
  for (std::size_t i = 0; i < 3 && phase > Phase::move; ++i) machine.done(i, Phase::move);
  return machine;
}

}  // namespace

Test(switch_machine, goes_on_only_when_all_have_answered) {
  SwitchMachine machine = in(Phase::prepare);
  machine.prepared(0, {42, 0});
  machine.prepared(0, {42, 0});
  machine.prepared(2, {42, 0});
  cr_assert_eq(machine.phase(), Phase::prepare);
  cr_assert(machine.is_awaited(1) && !machine.is_awaited(0));
  machine.done(1, Phase::move);
  cr_assert_eq(machine.phase(), Phase::prepare, "an answer of another phase counts for nothing");
  machine.prepared(1, {42, 0});
  cr_assert_eq(machine.phase(), Phase::quiesce);
  machine = in(Phase::commit);
  cr_assert_eq(machine.step(), 10);
  for (std::size_t i = 0; i < 3; ++i) machine.done(i, Phase::commit);
  cr_assert_eq(machine.phase(), Phase::committed);
  cr_assert_not(machine.failure().has_value());
}

Test(switch_machine, one_failure_before_the_commit_aborts) {
  for (const Phase phase : {Phase::prepare, Phase::quiesce, Phase::move}) {
    SwitchMachine machine = in(phase);
    machine.failed(1, "gone");
    cr_assert_eq(machine.phase(), Phase::aborted);
    cr_assert_eq(machine.failure()->message(), "shim 1: gone");
    machine.done(0, Phase::move);
    machine.done(0, Phase::commit);
    cr_assert_eq(machine.phase(), Phase::aborted, "nothing brings it back");
  }
}

Test(switch_machine, nothing_aborts_a_commit) {
  SwitchMachine machine = in(Phase::commit);
  machine.done(0, Phase::commit);
  machine.failed(1, "gone");
  cr_assert_eq(machine.phase(), Phase::commit);
  machine.done(2, Phase::commit);
  cr_assert_eq(machine.phase(), Phase::committed);
  cr_assert_eq(machine.lost(), std::vector<std::size_t>{1});
}

Test(switch_machine, ranks_that_stand_at_different_steps_are_asked_for_a_later_one) {
  SwitchMachine machine = in(Phase::quiesce);
  machine.quiesced(0, 10);
  machine.quiesced(1, 11);
  machine.quiesced(2, kNoStep);
  cr_assert_eq(machine.phase(), Phase::quiesce);
  cr_assert_eq(machine.round(), 1);
  cr_assert(machine.is_awaited(0) && machine.is_awaited(1) && machine.is_awaited(2));
  // One may say that it was told too late, at the very step at which another stands.
  machine.quiesced(0, 13);
  machine.quiesced(1, 13, true);
  machine.quiesced(2, kNoStep);
  cr_assert_eq(machine.round(), 2);
  for (std::size_t i = 0; i < 3; ++i) machine.quiesced(i, i < 2 ? 17 : kNoStep);
  cr_assert_eq(machine.phase(), Phase::move);
  cr_assert_eq(machine.step(), 17);
}

Test(switch_machine, in_chunks_all_prepare_again_secure_the_state_and_move_round_by_round) {
  SwitchMachine machine(2);
  machine.prepared(0, {1, 100});
  machine.use_chunks();
  machine.prepared(1, {1, 0});
  cr_assert_eq(machine.phase(), Phase::prepare);
  cr_assert_eq(machine.round(), 1);
  machine.prepared(0, {2, 10, 2});
  machine.prepared(1, {2, 10, 2});
  cr_assert_eq(machine.phase(), Phase::quiesce, "plans differ only within a round");
  for (std::size_t i = 0; i < 2; ++i) machine.quiesced(i, 7);
  cr_assert_eq(machine.phase(), Phase::secure);
  SwitchMachine failing = machine;
  failing.failed(1, "gone");
  cr_assert_eq(failing.phase(), Phase::aborted);
  machine.done(0, Phase::secure);
  machine.done(1, Phase::move);
  cr_assert_eq(machine.phase(), Phase::secure);
  machine.done(1, Phase::secure);
  for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
    cr_assert_eq(machine.phase(), Phase::move);
    cr_assert_eq(machine.chunk(), chunk);
    for (std::size_t i = 0; i < 2; ++i) machine.done(i, Phase::move);
  }
  cr_assert_eq(machine.phase(), Phase::commit);
  cr_assert_eq(machine.step(), 7u);
}

Test(switch_machine, different_plans_abort) {
  SwitchMachine plans(2);
  plans.prepared(0, {1, 0});
  plans.prepared(1, {2, 0});
  cr_assert_eq(plans.failure()->message(),
               "shim 1 has another migration plan: 0000000000000002, not 0000000000000001");
  SwitchMachine nobody = in(Phase::quiesce);
  for (std::size_t i = 0; i < 3; ++i) nobody.quiesced(i, kNoStep);
  cr_assert_eq(nobody.failure()->message(), "no shim of the old plan has stopped at a step");
}

Test(switch_machine, released_ranks_are_not_asked_to_commit) {
  SwitchMachine machine = in(Phase::move);
  machine.done(1, Phase::move);
  machine.let_go(1);
  machine.done(0, Phase::move);
  machine.done(2, Phase::move);
  cr_assert_eq(machine.phase(), Phase::commit);
  cr_assert(machine.is_awaited(0) && !machine.is_awaited(1) && machine.is_awaited(2));
  machine.done(0, Phase::commit);
  machine.done(2, Phase::commit);
  cr_assert_eq(machine.phase(), Phase::committed);
}
