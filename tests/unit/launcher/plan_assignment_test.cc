// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/plan_assignment.h"

#include <criterion/criterion.h>
#include <fmt/format.h>

#include "control/messages.h"

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
  const auto assignment = seat_by_plan(plan, kNodes, gpus_per_worker);
  cr_assert_not(assignment.ok());
  return assignment.error().message();
}

}  // namespace

Test(plan_assignment, ranks_go_over_the_plan_in_its_order) {
  const auto plan = plan_of({{"node2", {6}}, {"node1", {0}}, {"node2", {4}}, {"node1", {1}}});
  const auto assignment = seat_by_plan(plan, kNodes, 1);
  cr_assert(assignment.ok());
  const std::vector<WorkerId> wanted = {{1, 1}, {0, 0}, {1, 0}, {0, 1}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    cr_assert(assignment->seats[i].worker == wanted[i]);
    cr_assert_eq(assignment->seats[i].rank, static_cast<int>(i));
    cr_assert_eq(assignment->seats[i].local_world, 2);
  }
  cr_assert_eq(assignment->groups, 2);
  cr_assert_eq(assignment->seats[0].group, 0, "rank 0's node is the first");
  cr_assert_eq(assignment->seats[1].group, 1);
  cr_assert(*plan::Plan::parse(assignment->plan) == plan);
}

Test(plan_assignment, gpus_that_slurm_took_instead_stand_in_for_those_of_the_plan) {
  const auto plan = plan_of({{"node1", {0, 1}}, {"node2", {6, 7}}}, 2);
  const auto assignment = seat_by_plan(plan, kNodes, 1);
  cr_assert(assignment.ok());
  const auto fitted = plan::Plan::parse(assignment->plan);
  cr_assert(fitted->stages[0].groups[1].gpus == (std::vector<int>{4, 6}));
  cr_assert(assignment->seats[2].worker == (WorkerId{1, 0}));
}

Test(plan_assignment, workers_that_the_plan_has_no_use_for_wait) {
  const auto assignment =
      seat_by_plan(plan_of({{"node2", {6}}, {"node2", {4}}, {"node1", {1}}}), kNodes, 1);
  cr_assert(assignment.ok());
  cr_assert_eq(assignment->seats.size(), 3);
  cr_assert_eq(assignment->idle, 1);
  cr_assert(assignment->seats[2].worker == (WorkerId{0, 1}));
  cr_assert_eq(assignment->seats[2].local_world, 1);
  cr_assert_eq(assignment->seats[0].local_world, 2);
  cr_assert_eq(seat_by_plan(plan_of({{"node2", {6}}, {"node2", {4}}}), kNodes, 1)->idle, 2);
}

Test(plan_assignment, the_last_companions_gpus_stand_in_before_the_jobs_own) {
  const std::vector<WorkerNode> one_node = {{0, 10, "node1", 8, 2, "0-1", 2},
                                            {1, 20, "node1", 8, 2, "4,6", 2}};
  const auto assignment = seat_by_plan(plan_of({{"node1", {2}}, {"node1", {3}}}), one_node, 1);
  cr_assert(assignment.ok());
  cr_assert(assignment->seats[0].worker == (WorkerId{1, 0}));
  cr_assert(assignment->seats[1].worker == (WorkerId{1, 1}));
}

Test(plan_assignment, a_plan_that_does_not_fit_is_refused_with_the_reason) {
  cr_assert_eq(refusal(plan_of({{"node1", {0}}, {"node2", {4}}, {"node2", {6}}, {"node2", {7}}})),
               std::string("it uses 3 GPUs on node2, where the job has 2"));
  cr_assert_eq(refusal(plan_of({{"node3", {0}}})),
               std::string("it uses 1 GPU on node3, where the job has 0"));
  cr_assert_eq(refusal(plan_of({{"node1", {0}}, {"node1", {0}}})),
               std::string("it uses GPU 0 of node1 twice"));
  cr_assert_eq(refusal(plan_of({{"node1", {0}}}, 2)),
               std::string("a group of it has another number of GPUs than its TP degree"));
  refusal(plan_of({{"node1", {0, 1}}, {"node2", {4, 6}}}, 2), 2);
  plan::Plan split = plan_of({{"node1", {0}}, {"node1", {1}}});
  split.ep = 2;
  cr_assert_eq(refusal(split), std::string("it has CP 1 and EP 2, and programs run neither"));
}

Test(plan_assignment, an_irregular_plan_of_a_thousand_gpus_reaches_the_workers) {
  plan::Plan plan{4, {{6, 1, {}}}};
  std::vector<WorkerNode> nodes;
  for (int node = 0; node < 128; ++node) {
    const std::string name = fmt::format("gpu-rack{}-node{}.example.org", node / 8, node);
    nodes.push_back({node, static_cast<control::JobId>(10 + node), name, 8, 8, "0-7", 8});
    for (int gpu = 0; gpu < 8; ++gpu)
      plan.stages[0].groups.push_back({name, "nvidia_h100_80gb_hbm3", {gpu}, 1 + gpu % 3});
  }
  const auto told = control::message_from(to_json(control::Replan{plan.to_json(), "its owner"}));
  cr_assert(told.ok(), "%s", told.ok() ? "" : told.error().message().c_str());
  const auto heard = plan::Plan::from_json(std::get<control::Replan>(*told).plan);
  const auto assignment = seat_by_plan(*heard, nodes, 1);
  cr_assert(assignment.ok());
  control::WorkerStart start;
  start.environment.emplace_back("SWELL_PLAN", assignment->plan);
  // A credential of munge has four bytes for three, in a frame of 64 KiB.
  cr_assert_leq(control::to_json(start).dump().size(), 45'000);
  cr_assert(*plan::Plan::parse(assignment->plan) == plan);
}
