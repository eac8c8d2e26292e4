// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine in live mode: plans that its owner or the controller asks for.
#include <string>

#include "launcher/live_run.h"

using namespace live_run;

namespace {

/// Two stages of two layers on `gpus` GPUs of node2, where the companion is.
Json over_node2(std::vector<int> gpus) {
  swell::plan::Plan plan{2, {}};
  for (const int gpu : gpus)
    plan.stages.push_back({static_cast<int>(4 / gpus.size()), 1, {{"node2", "h100", {gpu}, 2}}});
  return plan.to_json();
}

/// Lends by a plan that does without the job's own worker, whose program leaves and whose shim
/// waits.
void leave_all_to_the_companion(Run& run) {
  run.lend(1, kCompanion, over_node2({0}));
  run.committed(1);
  run.handle(event::Exited{{0, 0}, {}, 0});
  run.handle(event::Hello{{0, 0}, "host", 3});
}

}  // namespace

Test(live, a_plan_that_is_asked_for_while_old_programs_leave_is_run_when_they_have) {
  Run run;
  run.grown();
  run.replan(1);
  cr_assert_eq(run.orders.size(), 2u);
  run.committed(2);
  run.replan(2);
  cr_assert_eq(run.orders.size(), 2u, "programs of the generation before still hold memory");
  cr_assert_eq(run.machine.status().plan_refused, std::string());
  run.handle(event::Exited{{0, 0}, {}, 1});
  run.handle(event::Exited{{1, 0}, {}, 1});
  cr_assert_eq(run.orders.size(), 3u);
  run.committed(3);
  cr_assert_eq(run.machine.status().generation, 3);
  cr_assert(run.machine.assignment().plan.find("\"layers\":2") != std::string::npos);
}

Test(live, a_plan_that_is_asked_for_before_the_program_has_begun_waits_for_it) {
  Run run(false);
  run.lend();
  run.replan(1);
  cr_assert(run.orders.empty());
  run.handle(event::Begun{0, ""});
  cr_assert_eq(run.orders.size(), 1u, "the growth comes first");
  run.committed(1);
  run.handle(event::Exited{{0, 0}, {}, 0});
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert_eq(run.machine.status().state, JobState::switching);
}

Test(live, a_plan_that_cannot_be_run_is_refused_to_the_controller_too) {
  Run run;
  run.grown();
  run.replan(1);
  run.committed(2);
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 1});
  run.replan(1);
  cr_assert_eq(run.machine.status().plan_refused, std::string("it runs already"));
  cr_assert_eq(run.machine.status().switched,
               std::string("another plan is not run: it runs already"));
  run.replan(3);
  cr_assert_eq(run.machine.status().plan_refused, std::string());
  run.aborted(3);
  cr_assert_eq(run.machine.status().plan_refused,
               std::string("its switch was called off: it broke"));
}

Test(live, a_plan_that_waits_is_refused_where_the_gpus_are_others_by_then) {
  Run run;
  run.lend();
  run.committed(1);
  run.replan(1);
  run.handle(event::Exited{{0, 0}, {0, 0}, 0});
  run.committed(2);
  run.replan(2);
  run.shrink(30);
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 1});
  cr_assert(run.orders.back().to == (Workers{{0, 0}}), "what is needed elsewhere comes first");
  run.committed(3);
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 2});
  cr_assert_neq(run.machine.status().plan_refused.find("1 GPU on node2, where the job has 0"),
                std::string::npos, "%s", run.machine.status().plan_refused.c_str());
}

Test(live, a_plan_may_do_without_the_jobs_own_workers_which_take_over_again_in_the_end) {
  Run run;
  run.lend(1, kCompanion, over_node2({0}));
  cr_assert_eq(run.orders.size(), 1);
  cr_assert(run.orders[0].from == (Workers{{0, 0}}) && run.orders[0].to == (Workers{{1, 0}}));
  cr_assert_neq(run.said.find("1 wait, as the plan does without them"), std::string::npos, "%s",
                run.said.c_str());
  run.committed(1);
  run.handle(event::Exited{{0, 0}, {}, 0});
  run.handle(event::Hello{{0, 0}, "host", 3});
  run.tick(run.now + 100);
  cr_assert_eq(run.orders.size(), 1, "the job's own worker waits");
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_not(run.code.has_value());

  run.shrink(30);
  cr_assert_eq(run.orders.size(), 2);
  cr_assert(run.orders[1].from == (Workers{{1, 0}}) && run.orders[1].to == (Workers{{0, 0}}));
  run.committed(2);
  run.handle(event::Exited{{1, 0}, {}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  run.handle(event::Exited{{0, 0}, {}});
  cr_assert_eq(run.code, 0);
}

Test(live, workers_that_wait_join_where_more_is_lent_without_a_plan) {
  Run run;
  leave_all_to_the_companion(run);
  run.offered();
  run.handle(event::Allocated{{{"nonce", kCompanion + 1, "", {worker_node(0, 0, "node3", 1)}}}});
  run.handle(event::Hello{{2, 0}, "host", 4});
  cr_assert_eq(run.orders.size(), 2);
  cr_assert(run.orders[1].to == (Workers{{0, 0}, {1, 0}, {2, 0}}));
}

Test(live, a_lost_companion_that_had_all_of_the_training_leaves_it_to_the_jobs_own_workers) {
  Run run;
  leave_all_to_the_companion(run);
  run.starts.clear();
  run.handle(event::Lost{{1, 0}});
  cr_assert_eq(run.starts.size(), 1);
  cr_assert_eq(run.starts[0].workers.size(), 1);
  cr_assert(run.starts[0].workers[0].first == (WorkerId{0, 0}));
  cr_assert_not(run.code.has_value());
}

Test(live, a_plan_is_of_a_size_that_the_program_runs_with) {
  const Json two_stages = over_node2({0, 1});
  for (const bool fits : {true, false}) {
    Run run;
    run.machine.handle(
        run.now, event::CanRunWith{fits ? std::vector<int>{1, 2, 3} : std::vector<int>{1, 3}});
    run.offered();
    Grow message;
    message.offers.resize(1);
    message.plan = two_stages;
    run.handle(message);
    run.handle(event::Allocated{{{"one", 0, "refused", {}}}});
    run.handle(event::Allocated{{{"two", kCompanion, "", {worker_node(0, 0, "node2", 2)}}}});
    for (const int local : {0, 1}) run.handle(event::Hello{{1, local}, "host", 2 + local});
    cr_assert_eq(run.orders.size(), 1);
    cr_assert_eq(run.orders[0].to.size(), fits ? 2 : 3);
    const std::string refused = run.machine.status().plan_refused;
    cr_assert_eq(refused, std::string(fits ? "" : "it is not of an allowed size"), "%s",
                 refused.c_str());
  }
}
