// SPDX-License-Identifier: GPL-2.0-or-later
// Programs that keep their process from one plan to the next.
#include <criterion/criterion.h>

#include "runtime/live_steps.h"

using namespace live_steps;

namespace {

Variables variables_of(const PlanShape& plan, int rank) {
  return {{"RANK", std::to_string(rank)},
          {"PLAN", std::to_string(plan.pp) + "," + std::to_string(plan.dp) + "," +
                       std::to_string(plan.tp) + "," + std::to_string(plan.zero)}};
}

/// Has the first `staying` ranks of the plan stay, and starts programs for the others.
std::vector<pid_t> prepare(LiveJob& job, const PlanShape& plan, int staying,
                           std::uint64_t generation) {
  for (int rank = 0; rank < staying; ++rank)
    cr_assert(job.keepers[static_cast<std::size_t>(rank)]->offer_next(
        generation, variables_of(plan, rank), staying == plan.ranks()));
  std::vector<pid_t> started;
  for (int rank = staying; rank < plan.ranks(); ++rank)
    started.push_back(
        job.start_rank(plan, static_cast<std::size_t>(rank), static_cast<std::size_t>(rank)));
  return started;
}

/// Why a switch was not made; empty: it was.
std::string why_not(const Result<SwitchReport>& report) {
  return !report ? report.error().message() : report->committed ? "" : report->why;
}

pid_t program_at(const LiveJob& job, int shim) { return job.status(shim).endpoint.program_pid; }

}  // namespace

Test(live_stays, processes_go_on_through_a_growth_and_a_reclaim_bitwise, .timeout = 300) {
  const PlanShape two{1, 1, 2, 0}, four{2, 1, 2, 0}, again{1, 2, 1, 1};
  LiveJob job(SWELL_EXAMPLE, 4, {"30000", "4", "12", "10", "200"});
  job.variables = {"STAYS=1"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto stay = job.start(two);
  cr_assert(coordinator.begin(job.shims(two), 1).ok());
  const auto lent = prepare(job, four, 2, 2);
  auto report = coordinator.switch_plan(job.shims(two), job.shims(four), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  for (int shim = 0; shim < 2; ++shim)
    cr_assert_eq(program_at(job, shim), stay[static_cast<std::size_t>(shim)]);
  prepare(job, again, 2, 3);
  report = coordinator.switch_plan(job.shims(four), job.shims(again), 3).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  for (const pid_t pid : lent) cr_assert_eq(job.wait(pid), 0, "who is not in the next plan leaves");
  for (int shim = 0; shim < 2; ++shim)
    cr_assert_eq(program_at(job, shim), stay[static_cast<std::size_t>(shim)]);
  cr_assert_lt(report.step, 30000, "the last plan trained too");
  for (const pid_t pid : stay) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(job.shims(again)) == unresized("30000"));
}

Test(live_stays, a_switch_that_is_called_off_is_forgotten_and_another_one_goes, .timeout = 300) {
  const PlanShape one{1, 1, 1, 0}, two{2, 1, 1, 0};
  LiveJob job(SWELL_EXAMPLE, 2, kForEver);
  job.variables = {"STAYS=1"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto stay = job.start(one);
  cr_assert(coordinator.begin(job.shims(one), 1).ok());
  cr_assert(job.keepers[0]->offer_next(2, variables_of(two, 0)));
  wait_for_waiting(job, 0);
  job.keepers[0]->withdraw_next();
  cr_assert_not(job.status(0).has_waiting);
  wait_for_steps(job, 0, job.status(0).step + 5);
  prepare(job, two, 1, 3);
  const auto report = coordinator.switch_plan(job.shims(one), job.shims(two), 3).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(program_at(job, 0), stay[0]);
  wait_for_steps(job, 0, report.step + 5);
}

Test(live_stays, one_that_is_killed_when_it_has_prepared_calls_the_switch_off, .timeout = 300) {
  const PlanShape from{1, 1, 2, 0}, to{2, 1, 2, 0};
  LiveJob job(SWELL_EXAMPLE, 4, kForEver);
  job.variables = {"STAYS=1"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto stay = job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  prepare(job, to, 2, 2);
  for (int shim = 0; shim < 4; ++shim) wait_for_waiting(job, shim);
  kill(stay[1], SIGKILL);
  job.wait(stay[1]);
  // It may be found out before anything is asked.
  auto limits = options();
  limits.prepare_limit = 2s;
  const auto report =
      Coordinator(LiveJob::cluster(), limits).switch_plan(job.shims(from), job.shims(to), 2);
  cr_assert(!report || !report->committed);
  wait_for_steps(job, 0, job.status(0).step + 5);
  cr_assert_eq(program_at(job, 0), stay[0], "the other one trains on");
}

Test(live_stays, a_program_that_has_not_said_that_it_can_is_not_asked, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 1, kForEver);
  Coordinator coordinator(LiveJob::cluster(), options());
  cr_assert_not(job.keepers[0]->offer_next(1, {}), "no program trains yet");
  job.start({});
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  cr_assert_not(job.keepers[0]->offer_next(2, {}));
}

Test(live_stays, a_program_that_stays_only_beside_old_ones_is_kept_through_a_reclaim_alone,
     .timeout = 300) {
  const PlanShape two{1, 1, 2, 0}, one{1, 1, 1, 0};
  LiveJob job(SWELL_EXAMPLE, 2, {"30000", "4", "12", "10", "200"});
  job.variables = {"STAYS=together"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto began = job.start(two);
  cr_assert(coordinator.begin(job.shims(two), 1).ok());
  cr_assert_not(job.keepers[0]->offer_next(2, variables_of(two, 0), false), "others would be new");
  wait_for_steps(job, 0, job.status(0).step + 5);
  cr_assert_not(job.status(0).has_waiting, "it was told to prepare");
  prepare(job, one, 1, 2);
  auto report = coordinator.switch_plan(job.shims(two), job.shims(one), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(job.wait(began[1]), 0);
  cr_assert_eq(program_at(job, 0), began[0]);
  // Its next session is asked the same.
  cr_assert_not(job.keepers[0]->offer_next(3, variables_of(two, 0), false));
  const auto anew = prepare(job, two, 0, 3);
  report = coordinator.switch_plan(job.shims(one), job.shims(two), 3).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  cr_assert_eq(job.wait(began[0]), 0);
  for (const pid_t pid : anew) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(job.shims(two)) == unresized("30000"));
}

Test(live_stays, a_declined_switch_is_called_off_at_once_with_the_reason, .timeout = 300) {
  const PlanShape two{1, 1, 2, 0}, one{1, 1, 1, 0};
  LiveJob job(SWELL_EXAMPLE, 2, kForEver);
  job.variables = {"STAYS=1"};
  Coordinator coordinator(LiveJob::cluster(), options());
  const auto stay = job.start(two);
  cr_assert(coordinator.begin(job.shims(two), 1).ok());
  // It cannot register its part of this plan.
  cr_assert(job.keepers[0]->offer_next(2, {{"RANK", "0"}, {"PLAN", "1,1,-1,0"}}, true));
  auto limits = options();
  limits.prepare_limit = 250s;  // the test ends before that
  Coordinator patient(LiveJob::cluster(), limits);
  const auto report = patient.switch_plan(job.shims(two), job.shims(one), 2);
  const std::string why = why_not(report);
  cr_assert_eq(why,
               "waiting for the program of new rank 0: tensor layer0.w: dimension 0: the part goes "
               "from 0 to -12; it must be within 0 to 12 and not empty",
               "%s", why.c_str());
  for (int shim = 0; shim < 2; ++shim) wait_for_steps(job, shim, job.status(shim).step + 5);
  // A refusal is forgotten with the offer.
  prepare(job, one, 1, 3);
  const auto again = patient.switch_plan(job.shims(two), job.shims(one), 3).value();
  cr_assert(again.committed, "%s", again.summary().c_str());
  cr_assert_eq(program_at(job, 0), stay[0]);
}
