// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/run_state.h"

#include <criterion/criterion.h>

#include "support/worker_nodes.h"

using namespace swell::launcher;

namespace {

/// A run of two basic workers (node 0) that train with two lent ones (node 1, job 9).
struct Lent : RunState {
  Lent() : RunState({worker_node(0, 5, "node1", 2)}) {
    companions.add(9, {worker_node(0, 0, "node2", 2)}).up = true;
    assignment = seat_workers(companions.usable(), 1, 4);
    generation = last_generation = 0;
    for (const Seat& seat : assignment.seats) workers[seat.worker].running = true;
  }
  HeldCompanion& companion() { return *companions.find(9); }
};

}  // namespace

Test(run_state, lent_gpus_that_are_asked_back_took_part_and_set_a_deadline) {
  Lent run;
  cr_assert(run.trains_on_lent());
  cr_assert_not(run.drain_by().has_value());
  run.companion().reclaimed = true;
  run.companion().leave_by = 42;
  cr_assert_not(run.trains_on_lent());
  cr_assert(run.lent_took_part());
  cr_assert_eq(run.drain_by(), 42);
  run.companions.add(10, {worker_node(0, 0, "node3", 1)}).reclaimed = true;
  cr_assert_eq(run.drain_by(), 42, "it has no worker in the generation");
}

Test(run_state, the_training_is_over_on_its_own_gpus_once_one_basic_worker_has_ended) {
  Lent run;
  cr_assert(run.all_train());
  run.workers[{1, 0}].running = false;
  cr_assert_not(run.all_train());
  cr_assert(run.basic_train());
  run.workers[{0, 1}].running = false;
  cr_assert_not(run.basic_train());
}

Test(run_state, all_have_ended_well_only_if_each_program_ended_with_0) {
  Lent run;
  for (const Seat& seat : run.assignment.seats) run.workers[seat.worker].ended_well = true;
  cr_assert(run.all_ended_well());
  run.workers[{1, 1}].ended_well = false;
  cr_assert_not(run.all_ended_well());
  run.assignment.seats.clear();
  cr_assert_not(run.all_ended_well(), "no program has run");
}

Test(run_state, another_program_needs_all_shims_and_each_of_them_ready) {
  Lent run;
  for (const Seat& seat : run.assignment.seats) run.workers[seat.worker].present = true;
  cr_assert(run.shims_are_there());
  cr_assert_not(run.are_ready(run.assignment));
  for (const Seat& seat : run.assignment.seats) run.workers[seat.worker].ready = true;
  cr_assert(run.are_ready(run.assignment));
  run.workers.forget(run.companion().nodes);
  cr_assert_not(run.shims_are_there());
  cr_assert_not(run.are_ready(run.assignment));
}

Test(run_state, an_assignment_over_fewer_workers_brings_in_none) {
  Lent run;
  cr_assert(run.covers(seat_workers(run.companions.basic(), 1, 2)));
  run.companions.add(10, {worker_node(0, 0, "node3", 1)}).up = true;
  cr_assert_not(run.covers(seat_workers(run.companions.usable(), 1, 5)));
}

Test(run_state, a_companion_that_is_up_waits_for_one_that_is_not_while_it_has_time) {
  Lent run;
  run.companions.add(10, {worker_node(0, 0, "node3", 1)});
  cr_assert_not(run.waits_for_stragglers(), "only one that trains is up");
  run.companions.add(11, {worker_node(0, 0, "node4", 1)}).up = true;
  cr_assert_not(run.waits_for_stragglers());
  run.companions.find(11)->waits_until = 10;
  cr_assert(run.waits_for_stragglers());
  run.companions.find(10)->reclaimed = true;
  cr_assert_not(run.waits_for_stragglers());
}
