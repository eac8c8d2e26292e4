// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/assignment_planner.h"

#include <criterion/criterion.h>

#include "support/worker_nodes.h"

using namespace swell;
using namespace swell::launcher;

namespace {

/// Two basic GPUs and four lent ones.
RunState run_of_six() {
  RunState run({{0, 5, "node1", 16, 2, "0-1", 2}});
  run.companions.add(9, {{0, 0, "node2", 32, 4, "0-3", 4}}).up = true;
  return run;
}

plan::Plan plan_over(const std::vector<int>& gpus) {
  plan::Plan plan{4, {{6, 1, {}}}};
  for (const int gpu : gpus) plan.stages[0].groups.push_back({"node2", "h100", {gpu}, 2});
  return plan;
}

}  // namespace

Test(assignment_planner, sizes_of_the_program_and_of_the_user_both_hold) {
  const RunState run = run_of_six();
  AssignmentPlanner planner({1, {2, 4, 6}, 0});
  cr_assert_eq(planner.next(run).seats.size(), 6u);
  cr_assert(planner.set_program_sizes({2, 4, 5}));
  cr_assert_not(planner.set_program_sizes({2, 4, 5}), "it said so before");
  cr_assert_eq(planner.next(run).seats.size(), 4u);
}

Test(assignment_planner, a_plan_of_an_allowed_size_is_followed_until_it_is_dropped) {
  const RunState run = run_of_six();
  AssignmentPlanner planner({1, {2, 4, 6}, 0});
  cr_assert_eq(planner.want(plan_over({0, 1, 2, 3}).to_json()), "");
  const RankAssignment next = planner.next(run);
  cr_assert_not(next.plan.empty());
  cr_assert_eq(next.seats.size(), 4u);
  cr_assert_eq(planner.drop_unfit(next, run), "");
  planner.drop();
  cr_assert(planner.next(run).plan.empty());
}

Test(assignment_planner, a_plan_that_is_not_run_is_dropped_with_the_reason) {
  const RunState run = run_of_six();
  AssignmentPlanner planner({1, {2, 4, 6}, 0});
  planner.want(plan_over({0, 1, 2}));
  const RankAssignment next = planner.next(run);
  cr_assert(next.plan.empty());
  cr_assert_eq(planner.drop_unfit(next, run), "it is not of an allowed size");
  cr_assert_not(planner.wants());
  cr_assert_eq(planner.refused(), "it is not of an allowed size");
  cr_assert_eq(planner.want(Json()), "");
  cr_assert_eq(planner.refused(), "", "nothing is asked for any more");
}

Test(assignment_planner, the_running_plan_stays_while_no_worker_comes_or_goes) {
  RunState run = run_of_six();
  AssignmentPlanner planner({1, {}, 0});
  planner.want(plan_over({3, 2, 1, 0}));
  run.assignment = planner.next(run);
  planner.drop();
  cr_assert_eq(planner.next(run).plan, run.assignment.plan);
  run.companions.add(10, {{0, 0, "node3", 8, 1, "0", 1}}).up = true;
  cr_assert(planner.next(run).plan.empty());
  cr_assert_eq(planner.next(run).seats.size(), 7u);
}
