// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/deadline_watch.h"

#include <criterion/criterion.h>

#include "controller/admission.h"
#include "unit/controller/live_world.h"

using namespace swell;
using namespace swell::controller;

namespace {

StepsLeft said() {
  StepsLeft steps;
  steps.heard(0, 10, 100, 1);
  return steps;
}

policy::DeadlineState state(std::optional<double> slack_s, int needed_gpus) {
  return {1, slack_s, needed_gpus};
}

/// Why a deadline was missed that stood so, with 4 GPUs.
std::string cause(const std::optional<policy::DeadlineState>& its, const StepsLeft& steps) {
  DeadlineWatch watch;
  watch.decided(its, 4, steps);
  cr_assert_not(watch.passes(999, 1000, 0), "it is still time");
  const auto why = watch.passes(1000, 1000, 0);
  cr_assert(why);
  cr_assert_not(watch.passes(1001, 1000, 0), "said once");
  cr_assert_eq(watch.words(), std::string("missed"));
  return *why;
}

}  // namespace

Test(deadline_watch, a_miss_has_its_cause) {
  cr_assert_neq(cause(std::nullopt, said()).find("policy"), std::string::npos);
  cr_assert_neq(cause(state(std::nullopt, 0), {}).find("--steps"), std::string::npos);
  cr_assert_neq(cause(state(std::nullopt, 0), said()).find("profile"), std::string::npos);
  cr_assert_neq(cause(state(-100, 0), said()).find("no number of GPUs"), std::string::npos);
  cr_assert_eq(cause(state(-100, 8), said()), std::string("it needed 8 GPUs and had 4"));
  cr_assert_eq(cause(state(10, 4), said()), std::string("it was slower than predicted"));
}

Test(deadline_watch, nothing_is_said_before_the_first_decision) {
  DeadlineWatch watch;
  cr_assert_eq(watch.words(), std::string());
  cr_assert_not(watch.passes(2000, 1000, 0), "as after a restart of slurmctld");
  watch.decided(state(std::nullopt, 0), 4, {});
  cr_assert_eq(*watch.passes(2000, 1000, 1500), std::string("it waited in the queue until then"));
}

Test(deadline_watch, a_drain_promises_nothing_until_the_next_decision) {
  for (const bool decided : {false, true}) {
    DeadlineWatch watch;
    if (decided) watch.decided(state(5000, 4), 4, said());
    watch.drains();
    cr_assert_eq(watch.words(), std::string("nothing is lent: the administrator drains Swell"));
    cr_assert_not(watch.slack_s());
    DeadlineWatch missed = watch;
    cr_assert_neq(missed.passes(1000, 1000, 0)->find("drains"), std::string::npos);
    watch.decided(state(5000, 4), 4, said());
    cr_assert_eq(watch.words(), std::string("kept, with 1.25 h to spare"));
  }
}

namespace {

/// A job of 8 GPUs in `partition` with a deadline, and what a decision says of it.
std::string words_in(const char* partition, bool drains) {
  test::World world;
  world.slurm.run(10, "node1", 8, "swell[elastic=max=16,deadline=2096-12-01T08:00:00Z basic=8]");
  world.slurm.find(10)->partition = partition;
  world.hello(1, 10, 8);
  for (int round = 0; round < 30; ++round) world.step();
  world.controller->set_draining(drains);
  world.step();
  return world.controller->jobs().at(10).deadline.words();
}

}  // namespace

Test(deadline_watch, a_decision_says_nothing_of_jobs_that_it_did_not_see) {
  cr_assert_neq(words_in("train", false).find("nothing can be promised"), std::string::npos);
  cr_assert_eq(words_in("another", false), std::string());
  cr_assert_neq(words_in("train", true).find("drains"), std::string::npos);
}

Test(deadline_watch, words_change_seldom) {
  DeadlineWatch watch;
  watch.decided(state(5000, 4), 4, said());
  cr_assert_eq(watch.words(), std::string("kept, with 1.25 h to spare"));
  watch.decided(state(4200, 4), 4, said());
  cr_assert_eq(watch.words(), std::string("kept, with 1.25 h to spare"), "within a step");
  watch.decided(state(1700, 4), 4, said());
  cr_assert_eq(watch.words(), std::string("kept, with 25 min to spare"));
  watch.decided(state(-5000, 8), 4, said());
  cr_assert_eq(watch.words(), std::string("kept with 8 GPUs, and it has 4"));
  watch.decided(state(-5000, 0), 4, said());
  cr_assert_eq(watch.words(),
               std::string("not kept, by 1.25 h: no number of GPUs that it may have now does"));
}

Test(deadline_watch, the_earliest_of_all_ends_counts) {
  slurm::JobRecord record;
  record.submit_time = 1000;
  cr_assert_eq(deadline_of(std::nullopt, record), 0);
  const control::Deadline hour{3600, 0}, at{0, 9000};
  cr_assert_eq(deadline_of(hour, record), 4600);
  cr_assert_eq(deadline_of(at, record), 9000);
  record.deadline = 8000;
  cr_assert_eq(deadline_of(at, record), 8000);
  record.end_time = 7000;
  cr_assert_eq(deadline_of(at, record), 8000, "no time limit");
  record.time_limit_min = 60;
  cr_assert_eq(deadline_of(at, record), 8000, "requeued at its limit, it goes on");
}

Test(deadline_watch, a_submission_fixes_the_time_and_one_that_has_passed_is_refused) {
  SubmitRequest request;
  request.tres_per_node = "gres:gpu:2";
  request.submitted = 1796112030;
  request.elastic = "deadline=6h";
  GrantBook book;
  const auto good = admit(request, {}, book, 0, true);
  cr_assert(good.ok(), "%s", good.ok() ? "" : good.error().message().c_str());
  cr_assert_neq(good->admin_comment->find("deadline=2026-12-01T14:00:30Z"), std::string::npos, "%s",
                good->admin_comment->c_str());
  request.elastic = "deadline=2026-12-01T08:00:30Z";
  const auto bad = admit(request, {}, book, 0, true);
  cr_assert_not(bad.ok());
  cr_assert_eq(
      bad.error().message(),
      std::string("--elastic: deadline=2026-12-01T08:00:30Z has passed; give a later time"));
}
