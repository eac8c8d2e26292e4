// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/plan_seating.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::launcher;

namespace {

const std::vector<WorkerNode> kNodes = {{0, 10, "node1", 8, 2, "0-1", 2},
                                        {1, 20, "node2", 8, 2, "4,6", 2}};

plan::Plan plan_of(std::vector<std::pair<std::string, std::vector<int>>> groups, int tp = 1) {
  plan::Plan plan{4, {{6, tp, {}}}};
  for (auto& [node, gpus] : groups) plan.stages[0].groups.push_back({node, "h100", gpus, 2});
  return plan;
}

std::string refusal(const plan::Plan& plan, int gpus_per_worker = 1) {
  const auto seating = seat_by_plan(plan, kNodes, gpus_per_worker);
  cr_assert_not(seating.ok());
  return seating.error().message();
}

}  // namespace

Test(plan_seating, ranks_go_over_the_plan_in_its_order) {
  const auto plan = plan_of({{"node2", {6}}, {"node1", {0}}, {"node2", {4}}, {"node1", {1}}});
  const auto seating = seat_by_plan(plan, kNodes, 1);
  cr_assert(seating.ok());
  const std::vector<WorkerId> wanted = {{1, 1}, {0, 0}, {1, 0}, {0, 1}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    cr_assert(seating->seats[i].worker == wanted[i]);
    cr_assert_eq(seating->seats[i].rank, static_cast<int>(i));
    cr_assert_eq(seating->seats[i].local_world, 2);
  }
  cr_assert_eq(seating->groups, 2);
  cr_assert_eq(seating->seats[0].group, 0, "rank 0's node is the first");
  cr_assert_eq(seating->seats[1].group, 1);
  cr_assert(*plan::Plan::parse(seating->plan) == plan);
}

Test(plan_seating, gpus_that_slurm_took_instead_stand_in_for_those_of_the_plan) {
  const auto plan = plan_of({{"node1", {0, 1}}, {"node2", {6, 7}}}, 2);
  const auto seating = seat_by_plan(plan, kNodes, 1);
  cr_assert(seating.ok());
  const auto fitted = plan::Plan::parse(seating->plan);
  cr_assert(fitted->stages[0].groups[1].gpus == (std::vector<int>{4, 6}));
  cr_assert(seating->seats[2].worker == (WorkerId{1, 0}));
}

Test(plan_seating, workers_that_the_plan_has_no_use_for_wait) {
  const auto seating =
      seat_by_plan(plan_of({{"node2", {6}}, {"node2", {4}}, {"node1", {1}}}), kNodes, 1);
  cr_assert(seating.ok());
  cr_assert_eq(seating->seats.size(), 3);
  cr_assert_eq(seating->idle, 1);
  cr_assert(seating->seats[2].worker == (WorkerId{0, 1}));
  cr_assert_eq(seating->seats[2].local_world, 1);
  cr_assert_eq(seating->seats[0].local_world, 2);
  cr_assert_eq(seat_by_plan(plan_of({{"node2", {6}}, {"node2", {4}}}), kNodes, 1)->idle, 2);
}

Test(plan_seating, the_last_companions_gpus_stand_in_before_the_jobs_own) {
  const std::vector<WorkerNode> one_node = {{0, 10, "node1", 8, 2, "0-1", 2},
                                            {1, 20, "node1", 8, 2, "4,6", 2}};
  const auto seating = seat_by_plan(plan_of({{"node1", {2}}, {"node1", {3}}}), one_node, 1);
  cr_assert(seating.ok());
  cr_assert(seating->seats[0].worker == (WorkerId{1, 0}));
  cr_assert(seating->seats[1].worker == (WorkerId{1, 1}));
}

Test(plan_seating, a_plan_that_does_not_fit_is_refused_with_the_reason) {
  cr_assert_eq(refusal(plan_of({{"node1", {0}}, {"node2", {4}}, {"node2", {6}}, {"node2", {7}}})),
               std::string("it uses 3 GPUs on node2, where the job has 2"));
  cr_assert_eq(refusal(plan_of({{"node3", {0}}})),
               std::string("it uses 1 GPU on node3, where the job has 0"));
  cr_assert_eq(refusal(plan_of({{"node1", {0}}, {"node1", {0}}})),
               std::string("it uses GPU 0 of node1 twice"));
  cr_assert_eq(refusal(plan_of({{"node1", {0}}}, 2)),
               std::string("a group of it has another number of GPUs than its TP degree"));
  refusal(plan_of({{"node1", {0, 1}}, {"node2", {4, 6}}}, 2), 2);
}
