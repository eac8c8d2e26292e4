// SPDX-License-Identifier: GPL-2.0-or-later
// De-fragmentation, the last resort of Algorithm 2.
#include "core/policy/rivals/defragment.h"

#include <criterion/criterion.h>

#include "core/policy/rivals/suika.h"
#include "support/views.h"

using namespace swell::policy;
using namespace support;

namespace {

/// Jobs 1 and 2 with 4 and 2 GPUs on nodes of their own, and job 9 that waits for a whole node.
ClusterView fragmented() {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.jobs.reserve(2);
  profile(add_job(view, 1, 0, 4), small_model(), light_coefficients());
  profile(add_job(view, 2, 1, 2), small_model(), light_coefficients());
  view.queue.push_back(pending(9, 1, 8));
  return view;
}

}  // namespace

Test(defragment, the_smallest_job_moves_out_of_a_waiting_ones_way) {
  const SimulatedDecisions decisions = Suika().simulate(fragmented());
  cr_assert_eq(decisions.migrations.size(), 1u);
  const Migration& move = decisions.migrations[0];
  cr_assert_eq(move.job, 2u);
  cr_assert_eq(move.needed_by, 9u);
  for (const auto& group : move.layout.stages[0].groups) {
    cr_assert_eq(group.node, 0);
    cr_assert_eq(group.gpus & 0x0F, 0u, "job 1 holds it");
  }
  cr_assert_eq(move.layout.gpu_count(), 2);
  cr_assert(decisions.grants.empty(), "what is idle is needed");
}

Test(defragment, nobody_gives_back_for_a_move_where_slurmctld_decides) {
  ClusterView view = fragmented();
  lend(view, view.jobs[1], 11, 1, 2);
  profile(view.jobs[1], small_model(), light_coefficients());
  for (const Reclaim& reclaim : MarginalBenefit().decide(view).reclaims)
    cr_assert_neq(reclaim.needed_by, 9u);
}

Test(defragment, nobody_moves_where_that_makes_no_room) {
  ClusterView view = fragmented();
  take(view, 0, {3, 24, 24000});
  cr_assert(Suika().simulate(view).migrations.empty());
}

Test(defragment, a_job_gives_back_what_it_is_lent_before_it_moves) {
  ClusterView view = fragmented();
  lend(view, view.jobs[1], 11, 1, 2);
  profile(view.jobs[1], small_model(), light_coefficients());
  const SimulatedDecisions decisions = Suika().simulate(view);
  cr_assert(decisions.migrations.empty());
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 11u);
  cr_assert_eq(decisions.reclaims[0].needed_by, 9u);
  cr_assert(decisions.grants.empty());
}

Test(defragment, the_place_that_a_job_moves_to_is_reclaimed_first) {
  ClusterView view = fragmented();
  lend(view, view.jobs[0], 11, 0, 4);
  profile(view.jobs[0], small_model(), light_coefficients());
  const SimulatedDecisions decisions = Suika().simulate(view);
  cr_assert(decisions.migrations.empty());
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 11u);
}
