// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/placement_state.h"

#include <criterion/criterion.h>
#include <random>

#include "support/views.h"

using namespace swell::policy;
using namespace support;

namespace {

/// The cluster's loss with a companion is its id: the youngest costs most.
const PlacementState::Loss kById = [](const ElasticJobView&, const CompanionView& companion) {
  return static_cast<double>(companion.id);
};

std::vector<JobId> companions(const std::vector<Reclaim>& reclaims) {
  std::vector<JobId> ids;
  for (const Reclaim& reclaim : reclaims) ids.push_back(reclaim.companion);
  return ids;
}

using Ids = std::vector<JobId>;

/// Job 1 with 2 GPUs on node 0 and companions 11 and 12, of 4 GPUs each, on node 1.
ClusterView lent_out(int nodes = 2) {
  ClusterView view = idle_cluster(nodes);
  ElasticJobView& job = add_job(view, 1, 0, 2);
  job.max_gpus = 16;
  lend(view, job, 11, 1, 4);
  lend(view, job, 12, 1, 4);
  return view;
}

int kept_gpus(const PlacementState& placement) {
  int sum = 0;
  for (std::size_t node = 0; node < placement.view().nodes.size(); ++node)
    sum += placement.kept_gpus(static_cast<NodeIndex>(node));
  return sum;
}

}  // namespace

Test(placement, idle_gpus_serve_the_queue_before_anything_is_reclaimed) {
  ClusterView view = lent_out();
  view.queue.push_back(pending(100, 1, 6));
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert(placement.reclaims().empty());
  cr_assert_eq(kept_gpus(placement), 6);
  cr_assert_eq(placement.free(0).gpus, 0, "kept for the pending job");
  cr_assert_not(placement.may_lend(view.jobs[0], 0, {1, 8, 8000}));
}

Test(placement, a_pending_job_gets_no_more_back_than_it_needs_and_the_smallest_loss_first) {
  ClusterView view = lent_out();
  view.queue.push_back(pending(100, 1, 7));
  view.nodes[0].free = {0, 0, 0};
  view.queue[0].per_node.gpus = 4;
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert_eq(companions(placement.reclaims()), (Ids{11}));
  cr_assert_eq(placement.reclaims()[0].needed_by, 100u);
  cr_assert_eq(placement.total(view.jobs[0]), 6);
  cr_assert(placement.shrinks(view.jobs[0]));
  cr_assert(placement.is_reclaimed(11));
  cr_assert_not(placement.is_reclaimed(12));
}

Test(placement, a_job_that_could_not_start_anyway_reclaims_nothing) {
  ClusterView view = lent_out();
  view.queue.push_back(pending(100, 2, 8));  // job 1's own GPUs are in the way on node 0
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_idle);
  cr_assert(placement.reclaims().empty());
  cr_assert_eq(kept_gpus(placement), 0);
}

/// Companions 11 to 16 of one job, each of 4 GPUs, two on each of nodes 1 to 3; the oldest of node
/// 1 are missed most, the youngest least.
ClusterView lent_on_three() {
  ClusterView view = idle_cluster(4);
  view.nodes[0].free = {0, 0, 0};
  ElasticJobView& job = add_job(view, 1, 0, 8);
  job.max_gpus = 32;
  for (JobId id = 11; id <= 16; ++id) lend(view, job, id, 1 + static_cast<int>(id - 11) / 2, 4);
  return view;
}

Test(placement, without_the_select_plugin_those_go_that_slurm_would_preempt) {
  const PlacementState::Loss young_ones_first = [](const ElasticJobView&,
                                                   const CompanionView& companion) {
    return 100 - static_cast<double>(companion.id);
  };
  struct Case {
    Preemption preemption;
    int gpus;
    Ids reclaimed;
  };
  const Case cases[] = {
      {Preemption::as_reclaimed, 4, {16}},     {Preemption::oldest_first, 4, {11}},
      {Preemption::youngest_first, 4, {16}},   {Preemption::as_reclaimed, 8, {16, 15}},
      {Preemption::oldest_first, 8, {11, 12}}, {Preemption::youngest_first, 8, {16, 15}},
  };
  for (const Case& each : cases) {
    ClusterView view = lent_on_three();
    view.preemption = each.preemption;
    view.queue.push_back(pending(100, 1, each.gpus));
    PlacementState placement(view);
    placement.serve_queue(10, young_ones_first, PlacementState::Nodes::by_loss);
    cr_assert_eq(companions(placement.reclaims()), each.reclaimed, "%d GPUs, order %d", each.gpus,
                 static_cast<int>(each.preemption));
  }
}

Test(placement, as_slurm_it_takes_no_more_in_its_order_than_let_the_job_start) {
  ClusterView view = idle_cluster(3);
  view.preemption = Preemption::oldest_first;
  ElasticJobView& job = add_job(view, 1, 0, 8);
  for (const auto& [id, node] : {std::pair{11, 2}, {12, 1}, {13, 2}, {14, 1}})
    lend(view, job, static_cast<JobId>(id), node, 4);
  view.queue = {pending(100, 1, 8), pending(101, 1, 4)};
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  // With 11, 12 and 13 gone node 2 has room; 12 is of no use there. Then 12 goes for the next job.
  cr_assert_eq(companions(placement.reclaims()), (Ids{11, 13, 12}));
  view.queue = {pending(100, 3, 8)};
  PlacementState none(view);
  none.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert(none.reclaims().empty(), "job 1's own GPUs are in the way");
}

Test(placement, leaving_companions_serve_the_queue_and_are_not_reclaimed_twice) {
  ClusterView view = lent_out();
  view.nodes[0].free = {0, 0, 0};
  view.jobs[0].companions[1].leaving = true;
  view.queue.push_back(pending(100, 1, 4));
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert(placement.reclaims().empty());
  cr_assert_eq(kept_gpus(placement), 4);
}

Test(placement, where_what_leaves_already_suffices_nothing_is_reclaimed_on_emptier_nodes) {
  for (const PlacementState::Nodes nodes :
       {PlacementState::Nodes::by_idle, PlacementState::Nodes::by_loss}) {
    ClusterView view = idle_cluster(3);
    ElasticJobView& job = add_job(view, 1, 0, 8);
    lend(view, job, 11, 1, 2);
    lend(view, job, 12, 2, 8);
    job.companions[1].leaving = true;
    view.queue.push_back(pending(100, 1, 8));
    PlacementState placement(view);
    placement.serve_queue(10, kById, nodes);
    cr_assert(placement.reclaims().empty());
    cr_assert_eq(placement.kept_gpus(2), 8);
    cr_assert_eq(placement.kept_gpus(1), 0, "idle GPUs of other nodes may be lent");
  }
}

Test(placement, gpus_that_are_still_leaving_are_not_lent_once_the_room_is_closed) {
  ClusterView view = lent_out();
  view.jobs[0].companions[0].leaving = true;
  view.queue.push_back(pending(100, 1, 8));  // node 1, once both companions have left
  view.nodes[0].free = {0, 0, 0};
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  placement.close();
  cr_assert_leq(placement.free(1).gpus, 0);
  cr_assert_not(placement.may_lend(view.jobs[0], 1, {1, 8, 8000}));
}

Test(placement, only_the_head_of_the_queue_is_served) {
  ClusterView view = lent_out(3);
  view.queue = {pending(100, 1, 6), pending(101, 1, 8), pending(102, 1, 8)};
  PlacementState placement(view);
  placement.serve_queue(2, kById, PlacementState::Nodes::by_idle);
  cr_assert_eq(kept_gpus(placement), 14);
  cr_assert(placement.reclaims().empty(), "job 102 is not looked at");
}

Test(placement, lends_only_where_type_and_node_suit_the_job_and_nothing_settles) {
  ClusterView view = idle_cluster(4);
  ElasticJobView& job = add_job(view, 1, 0, 2);
  view.nodes[1].gpu_type = "a100";
  job.excluded_nodes = {2};
  view.nodes[3].settling = true;
  const PlacementState placement(view);
  cr_assert(placement.may_lend(job, 0, job.per_worker));
  for (const NodeIndex node : {1, 2, 3})
    cr_assert_not(placement.may_lend(job, node, job.per_worker), "node %d", node);
}

Test(placement, lent_gpus_are_not_free_until_undone) {
  const ClusterView view = idle_cluster(1);
  const ElasticJobView job;
  PlacementState placement(view);
  placement.lend(job, 0, {8, 8, 8000});
  cr_assert_eq(placement.free(0).gpus, 0);
  placement.undo(0, {8, 8, 8000});
  cr_assert(placement.free(0) == view.nodes[0].free);
}

Test(placement, the_order_of_reclaiming_begins_with_what_leaves_and_asks_anew_after_each) {
  ClusterView view = lent_out(3);
  lend(view, view.jobs[0], 13, 2, 1);
  view.jobs[0].companions[2].leaving = true;
  view.order_wanted = true;
  const ElasticJobView& job = view.jobs[0];
  PlacementState placement(view);
  // The more a job has lost, the more the rest is missed: 12 is dearer than 11 from the start.
  const PlacementState::Loss loss = [&](const ElasticJobView& of, const CompanionView& companion) {
    return companion.id - 100.0 * placement.total(of);
  };
  Decisions decisions;
  write_reclaims(placement, loss, decisions);
  cr_assert_eq(decisions.reclaim_order, (Ids{13, 11, 12}));
  cr_assert_eq(placement.total(job), 3, "basic GPUs, and what leaves by an earlier decision");
}

Test(placement, random_queues_never_keep_more_than_is_idle_or_lent) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    ClusterView view = idle_cluster(1 + below(4));
    const int nodes = static_cast<int>(view.nodes.size());
    view.jobs.reserve(8);
    JobId next = 11;
    for (JobId id = 1; id <= 4; ++id) {
      const NodeIndex home = below(nodes);
      if (view.nodes[static_cast<std::size_t>(home)].free.gpus < 2) continue;
      ElasticJobView& job = add_job(view, id, home, 1 + below(2));
      const NodeIndex other = below(nodes);
      const int gpus = 1 + below(3);
      if (view.nodes[static_cast<std::size_t>(other)].free.gpus < gpus) continue;
      lend(view, job, next++, other, gpus);
      job.companions.back().leaving = below(3) == 0;
    }
    for (JobId id = 100; id < 104; ++id)
      view.queue.push_back(pending(id, 1 + below(2), 1 + below(8)));
    int idle = 0, lent = 0;
    for (const NodeView& node : view.nodes) idle += node.free.gpus;
    for (const ElasticJobView& job : view.jobs) lent += job.lent_gpus();
    PlacementState placement(view);
    placement.serve_queue(
        10, kById, below(2) == 0 ? PlacementState::Nodes::by_idle : PlacementState::Nodes::by_loss);
    placement.close();
    cr_assert_leq(kept_gpus(placement), idle + lent, "round %d", round);
    std::set<JobId> seen;
    for (const Reclaim& reclaim : placement.reclaims()) {
      cr_assert(seen.insert(reclaim.companion).second, "round %d: %u twice", round,
                reclaim.companion);
      for (const ElasticJobView& job : view.jobs)
        for (const CompanionView& companion : job.companions)
          if (companion.id == reclaim.companion)
            cr_assert_not(companion.leaving, "round %d", round);
    }
    for (const ElasticJobView& job : view.jobs)
      cr_assert_geq(placement.total(job), job.basic_gpus, "round %d", round);
    for (NodeIndex node = 0; node < nodes; ++node)
      cr_assert_leq(placement.free(node).gpus, view.nodes[static_cast<std::size_t>(node)].free.gpus,
                    "round %d: lends what is not idle", round);
  }
}

Test(placement, parts_of_one_job_are_given_different_nodes) {
  ClusterView view = lent_out();
  for (int i = 0; i < 2; ++i) {  // node 0 has 6 idle GPUs, which would do for both
    view.queue.push_back(pending(100 + static_cast<JobId>(i), 1, 2));
    view.queue.back().part_of = 100;
  }
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert_eq(companions(placement.reclaims()), (Ids{11}));
  cr_assert_eq(kept_gpus(placement), 4);
}

Test(placement, a_part_that_few_nodes_will_do_for_chooses_first) {
  ClusterView view = lent_out();
  view.queue.push_back(pending(100, 1, 1));
  view.queue.push_back(pending(101, 1, 6));
  for (PendingDemand& part : view.queue) part.part_of = 100;
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert_eq(placement.free(0).gpus, 0, "the six idle ones are for the large part");
  cr_assert_eq(companions(placement.reclaims()), (Ids{11}));
}

Test(placement, where_one_part_cannot_start_nothing_is_kept_or_reclaimed_for_the_others) {
  ClusterView view = lent_out();
  view.queue.push_back(pending(100, 1, 8));
  view.queue.push_back(pending(101, 1, 7));  // node 0 has six
  for (PendingDemand& part : view.queue) part.part_of = 100;
  view.queue.push_back(pending(200, 1, 6));
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert(placement.reclaims().empty());
  cr_assert_eq(kept_gpus(placement), 6, "those of the job behind");
}

namespace {

/// Job 2 of user 1001, with nothing lent, on node 2; node 0 of job 1 is full.
ClusterView of_two_users() {
  ClusterView view = lent_out(3);
  view.nodes[0].free = {0, 0, 0};
  add_job(view, 2, 2, 6);
  view.jobs[0].sharing.owner = 1000;
  view.jobs[1].sharing.owner = 1001;
  view.queue.push_back(pending(100, 1, 3));
  view.queue[0].sharing.owner = 1001;
  return view;
}

Ids reclaimed_in(const ClusterView& view) {
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  return companions(placement.reclaims());
}

}  // namespace

Test(placement, a_job_that_shares_no_node_gets_one_without_companions_of_others) {
  ClusterView view = of_two_users();
  cr_assert_eq(reclaimed_in(view), (Ids{11}), "both may share: one companion is enough");
  view.queue[0].sharing.sole_user = true;
  cr_assert_eq(reclaimed_in(view), (Ids{11, 12}), "--exclusive=user");
  view.queue[0].sharing.sole_user = false;
  view.jobs[0].sharing.sole_user = true;
  cr_assert_eq(reclaimed_in(view), (Ids{11, 12}), "the companions keep their node");
  view.jobs[0].sharing.sole_user = false;
  view.queue[0].sharing.label = "secret";
  cr_assert_eq(reclaimed_in(view), (Ids{11, 12}), "by label");
}

Test(placement, companions_of_the_same_user_may_stay_where_others_may_not) {
  ClusterView view = of_two_users();
  view.queue[0].sharing = {1000, true, ""};
  cr_assert_eq(reclaimed_in(view), (Ids{11}));
  lend(view, view.jobs[1], 13, 2, 2);
  view.queue[0].sharing.owner = 1001;
  view.queue[0].per_node.gpus = 2;
  cr_assert_eq(reclaimed_in(view), (Ids{13}), "its own user's node needs no clearing");
  for (const Preemption order : {Preemption::oldest_first, Preemption::youngest_first}) {
    view.preemption = order;
    cr_assert_eq(reclaimed_in(view), (Ids{13}), "Slurm preempts where it may run the job");
    view.queue[0].excluded_nodes = {2};
    PlacementState placement(view);
    placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
    cr_assert_eq(placement.reclaims().size(), 2u);
    view.queue[0].excluded_nodes = {};
  }
}

Test(placement, idle_gpus_beside_companions_of_others_serve_no_job_that_may_not_share) {
  ClusterView view = of_two_users();
  view.jobs[0].companions.pop_back();
  view.nodes[1].free += view.jobs[0].per_worker * 4;
  cr_assert(reclaimed_in(view).empty());
  view.queue[0].sharing.sole_user = true;
  cr_assert_eq(reclaimed_in(view), (Ids{11}));
  view.jobs[0].companions[0].leaving = true;
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  cr_assert(placement.reclaims().empty());
  cr_assert_eq(placement.kept_gpus(1), 3);
}

Test(placement, a_node_that_is_kept_for_a_job_is_lent_to_none_that_may_not_share_it) {
  ClusterView view = of_two_users();
  view.jobs[0].companions.clear();
  view.nodes[1].free = view.nodes[1].total;
  view.queue[0].sharing.sole_user = true;
  PlacementState placement(view);
  placement.serve_queue(10, kById, PlacementState::Nodes::by_loss);
  placement.close();
  cr_assert_eq(placement.kept_gpus(1), 3);
  cr_assert_not(placement.may_lend(view.jobs[0], 1, {1, 8, 8000}));
  cr_assert(placement.may_lend(view.jobs[1], 1, {1, 8, 8000}));
}

Test(placement, nodes_of_jobs_that_share_none_are_not_considered) {
  ClusterView view = of_two_users();
  view.queue[0].closed_nodes = {1};
  cr_assert(reclaimed_in(view).empty());
  view.queue.clear();
  view.jobs[1].closed_nodes = {1};
  view.nodes[1].free = {1, 8, 8000};
  PlacementState placement(view);
  cr_assert(placement.may_lend(view.jobs[0], 1, {1, 8, 8000}));
  cr_assert_not(placement.may_lend(view.jobs[1], 1, {1, 8, 8000}));
}

Test(placement, a_node_is_not_lent_to_two_users_that_may_not_share_it) {
  ClusterView view = of_two_users();
  view.queue.clear();
  view.jobs[0].companions.clear();
  view.nodes[1].free = view.nodes[1].total;
  for (ElasticJobView& job : view.jobs) job.sharing.sole_user = true;
  const Resources one{1, 8, 8000};
  PlacementState placement(view);
  cr_assert(placement.may_lend(view.jobs[1], 1, one));
  placement.lend(view.jobs[0], 1, one);
  cr_assert(placement.may_lend(view.jobs[0], 1, one));
  cr_assert_not(placement.may_lend(view.jobs[1], 1, one));
  placement.undo(view.jobs[0], 1, one);
  cr_assert(placement.may_lend(view.jobs[1], 1, one));
}

Test(placement, a_node_is_used_by_another_user_once_the_only_companion_gives_it_up) {
  ClusterView view = of_two_users();
  view.queue.clear();
  cr_assert(PlacementState(view).may_use(view.jobs[1], 1));
  for (ElasticJobView& job : view.jobs) job.sharing.sole_user = true;
  cr_assert_not(PlacementState(view).may_use(view.jobs[1], 1, &view.jobs[0].companions[0]),
                "another one stays");
  cr_assert(PlacementState(view).may_use(view.jobs[0], 1));
  view.jobs[0].companions.pop_back();
  cr_assert_not(PlacementState(view).may_use(view.jobs[1], 1));
  cr_assert(PlacementState(view).may_use(view.jobs[1], 1, &view.jobs[0].companions[0]));
}

Test(placement, two_pending_jobs_that_may_not_share_a_node_get_two) {
  ClusterView view = of_two_users();
  lend(view, view.jobs[0], 13, 2, 2);
  view.queue[0].sharing.sole_user = true;
  view.queue[0].per_node.gpus = 1;
  view.queue.push_back(view.queue[0]);
  view.queue[1].id = 101;
  cr_assert_eq(reclaimed_in(view), (Ids{13}), "one user's jobs share a node");
  view.queue[1].sharing.owner = 1002;
  cr_assert_eq(reclaimed_in(view), (Ids{13, 11, 12}));
}
