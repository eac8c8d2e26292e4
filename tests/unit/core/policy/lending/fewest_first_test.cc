// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/fewest_first.h"

#include <criterion/criterion.h>

#include "support/views.h"

#include "support/fabrics.h"

using namespace swell::policy;
using namespace support;

namespace {

Decisions decide(const ClusterView& view) { return FewestFirst().decide(view); }

}  // namespace

Test(fewest_first, lends_idle_gpus_up_to_the_most_a_job_may_have) {
  ClusterView view = idle_cluster(4);
  add_job(view, 1, 0, 4);
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 12);
  cr_assert_eq(decisions.grants.front().node, 0, "the job's own node comes first");
}

Test(fewest_first, the_job_with_the_fewest_gpus_is_served_first) {
  ClusterView view = idle_cluster(2);
  view.jobs.reserve(2);
  add_job(view, 1, 0, 6);
  add_job(view, 2, 1, 2);
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 2), 6, "2 + 6 reaches its most, 8");
  cr_assert_eq(granted(decisions, 1), 2, "the other gets what is left");
}

Test(fewest_first, grants_exactly_what_is_free_on_each_node) {
  ClusterView view = idle_cluster(3);
  add_job(view, 1, 0, 8);
  std::vector<int> on(3, 0);
  for (const Grant& grant : decide(view).grants)
    on[static_cast<std::size_t>(grant.node)] += grant.lent.gpus;
  cr_assert(on == std::vector<int>({0, 8, 8}));
}

Test(fewest_first, never_lends_gpus_that_a_pending_job_could_start_on) {
  ClusterView view = idle_cluster(2);
  add_job(view, 1, 0, 4);
  view.queue.push_back(pending(9, 1, 8));
  for (const Grant& grant : decide(view).grants) cr_assert_neq(grant.node, 1);
}

Test(fewest_first, lends_what_a_blocked_pending_job_cannot_use_yet) {
  ClusterView view = idle_cluster(2);
  add_job(view, 1, 0, 4);
  view.queue.push_back(pending(9, 2, 8));
  cr_assert_eq(granted(decide(view), 1), 12);
}

Test(fewest_first, reclaims_what_a_pending_job_needs_and_no_more) {
  ClusterView view = idle_cluster(3);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  lend(view, job, 11, 1, 8);
  lend(view, job, 12, 2, 4);
  view.queue.push_back(pending(9, 1, 8));
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 12u, "node 3 needs only 4 GPUs reclaimed");
  cr_assert_eq(decisions.reclaims[0].needed_by, 9u);
  cr_assert_eq(granted(decisions, 1), 0, "a job that shrinks does not grow in the same decision");
}

Test(fewest_first, reclaims_from_the_job_with_the_most_first) {
  ClusterView view = idle_cluster(2);
  view.jobs.reserve(2);
  ElasticJobView& small = add_job(view, 1, 0, 2);
  ElasticJobView& large = add_job(view, 2, 0, 6);
  lend(view, small, 11, 1, 4);
  lend(view, large, 12, 1, 4);
  view.queue.push_back(pending(9, 1, 4));
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 12u);
}

Test(fewest_first, counts_on_companions_that_leave_already) {
  ClusterView view = idle_cluster(2);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  lend(view, job, 11, 1, 8);
  job.companions[0].leaving = true;
  view.queue.push_back(pending(9, 1, 8));
  cr_assert(decide(view).reclaims.empty());
}

Test(fewest_first, takes_nothing_back_for_a_job_that_could_not_start_anyway) {
  ClusterView view = idle_cluster(2);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  lend(view, job, 11, 1, 8);
  view.queue.push_back(pending(9, 2, 8));
  cr_assert(decide(view).reclaims.empty());
}

Test(fewest_first, grows_only_to_allowed_sizes_and_in_whole_workers) {
  ClusterView view = idle_cluster(2);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  job.sizes = {4, 8, 20};
  job.max_gpus = 100;
  cr_assert_eq(granted(decide(view), 1), 4,
               "12 GPUs are idle: 8 in all is the largest size that fits");
  job.sizes.clear();
  job.per_worker = {8, 8, 8000};
  job.max_gpus = 100;
  for (const Grant& grant : decide(view).grants) cr_assert_eq(grant.lent.gpus % 8, 0);
}

Test(fewest_first, lends_only_acceptable_types_and_nodes) {
  ClusterView view = idle_cluster(3);
  ElasticJobView& job = add_job(view, 1, 0, 8);
  view.nodes[1].gpu_type = "a100";
  job.excluded_nodes = {2};
  cr_assert(decide(view).grants.empty());
  job.gpu_types = {"h100", "a100"};
  cr_assert_eq(granted(decide(view), 1), 8);
}

Test(fewest_first, does_not_stop_a_training_for_a_small_gain) {
  ClusterView view = idle_cluster(3);
  ElasticJobView& job = add_job(view, 1, 0, 8);
  job.max_gpus = 64;
  lend(view, job, 11, 1, 8);
  view.nodes[2].free.gpus = 1;
  cr_assert(decide(view).grants.empty());
  view.nodes[2].free.gpus = 2;
  cr_assert_eq(granted(decide(view), 1), 2);
}

Test(fewest_first, lends_nothing_on_a_node_that_a_job_is_just_leaving) {
  ClusterView view = idle_cluster(2);
  add_job(view, 1, 0, 8);
  view.nodes[1].settling = true;
  cr_assert(decide(view).grants.empty());
  view.queue.push_back(pending(9, 1, 8));
  cr_assert(decide(view).reclaims.empty(), "but a pending job can start there in a moment");
}

Test(fewest_first, waits_while_a_reconfiguration_is_under_way) {
  ClusterView view = idle_cluster(2);
  add_job(view, 1, 0, 4).may_grow = false;
  cr_assert(decide(view).grants.empty());
}

Test(fewest_first, equal_views_give_equal_decisions) {
  ClusterView view = idle_cluster(16);
  view.jobs.reserve(8);
  for (JobId id = 1; id <= 8; ++id)
    add_job(view, id, static_cast<NodeIndex>(id), 1 + static_cast<int>(id) % 3);
  const Decisions first = decide(view);
  const Decisions second = decide(view);
  cr_assert(first.grants == second.grants);
}

Test(fewest_first, lends_from_the_nodes_nearest_to_the_jobs_own) {
  ClusterView view = idle_cluster(6);
  // Switches 1 and 2 in turn: node1, node3 and node5 are under the same one.
  std::vector<swell::cluster::FabricNode> nodes;
  for (int i = 0; i < 6; ++i)
    nodes.push_back({view.nodes[static_cast<std::size_t>(i)].name, "h100", 8,
                     swell::test::dgx(i % 2 == 0 ? "leaf1" : "leaf2")});
  view.positions.fabric =
      std::make_shared<const swell::cluster::Fabric>(swell::cluster::Fabric::make(nodes));
  view.positions.index = {0, 1, 2, 3, 4, 5};
  add_job(view, 1, 0, 8).max_gpus = 24;
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.grants.size(), 2u);
  cr_assert_eq(decisions.grants[0].node, 2);
  cr_assert_eq(decisions.grants[1].node, 4);
  view.positions = {};
  cr_assert_eq(decide(view).grants[0].node, 1, "where nothing is known, the first that is free");
}

Test(fewest_first, all_companions_in_the_order_in_which_they_would_go) {
  ClusterView view = idle_cluster(4);
  add_job(view, 1, 0, 2);
  add_job(view, 2, 1, 2);
  for (JobId i = 1; i <= 2; ++i)
    for (JobId job : {1, 2})
      lend(view, view.jobs[job - 1], 10 * job + i, 2 + static_cast<NodeIndex>(i - 1), 2);
  lend(view, view.jobs[1], 23, 3, 1);
  view.jobs[1].companions.back().leaving = true;
  view.order_wanted = true;
  // First those that leave already; then from the job that has more: 7 to 6, then by turns.
  const std::vector<JobId> expected{23, 21, 11, 22, 12};
  cr_assert_eq(decide(view).reclaim_order, expected);
}

// Two jobs of 2 and 4 GPUs on one node, of whose others two are idle.
Test(fewest_first, wanted_gpus_of_a_consenting_job_come_before_the_job_with_the_fewest) {
  ClusterView view = idle_cluster(1);
  view.jobs.reserve(2);
  add_job(view, 1, 0, 2);
  ElasticJobView& larger = add_job(view, 2, 0, 4);
  cr_assert_eq(granted(decide(view), 1), 2);
  larger.wanted_gpus = 6;
  cr_assert_eq(granted(decide(view), 2), 2);
  cr_assert_eq(granted(decide(view), 1), 0);
}

Test(fewest_first, the_first_started_job_gets_all_its_wanted_gpus_first) {
  ClusterView view = idle_cluster(1);
  view.jobs.reserve(2);
  for (JobId id : {1, 2}) {
    ElasticJobView& job = add_job(view, id, 0, 2);
    job.wanted_gpus = 5;
    job.started_s = id == 1 ? 100 : 50;
  }
  Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 2), 3);
  cr_assert_eq(granted(decisions, 1), 1);
  view.jobs[0].started_s = 50;
  decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 3, "of two that started together the lower id is first");
  cr_assert_eq(granted(decisions, 2), 1);
}

// Four GPUs are idle.
Test(fewest_first, beyond_what_it_wanted_a_job_is_one_of_many) {
  ClusterView view = idle_cluster(1);
  view.jobs.reserve(2);
  ElasticJobView& owed = add_job(view, 1, 0, 2);
  owed.wanted_gpus = 3;
  add_job(view, 2, 0, 2);
  Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 2);
  cr_assert_eq(granted(decisions, 2), 2);
  // A step that ends beyond it waits for its turn as a whole.
  owed.sizes = {2, 6};
  decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 4, "equally many GPUs: the lower id");
  view.jobs[1].basic_gpus = 1;
  decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 0);
  cr_assert_gt(granted(decisions, 2), 0);
}

Test(fewest_first, a_job_grows_by_little_where_that_is_owed_to_it) {
  ClusterView view = idle_cluster(3);
  ElasticJobView& job = add_job(view, 1, 0, 8);
  lend(view, job, 11, 1, 8);
  take(view, 2, {7, 56, 56000});
  cr_assert_eq(granted(decide(view), 1), 0, "1 to 16 is below a tenth");
  job.wanted_gpus = 18;
  cr_assert_eq(granted(decide(view), 1), 1);
  job.sizes = {8, 16, 17, 20};
  cr_assert_eq(granted(decide(view), 1), 1);
  job.wanted_gpus = 16;
  cr_assert_eq(granted(decide(view), 1), 0, "it has what it wanted");
}
