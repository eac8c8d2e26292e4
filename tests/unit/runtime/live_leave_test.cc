// SPDX-License-Identifier: GPL-2.0-or-later
// Ranks that must be gone by a time: what only they have moves first.
#include <atomic>
#include <criterion/criterion.h>

#include "runtime/live_steps.h"

using namespace live_steps;

namespace {

using Hold = Keeper::Options::Hold;

/// Two stages in two shards each; the second stage's ranks leave, and the others become replicas of
/// all: the other shard of their own stage is on a rank that stays, both of the second on leavers.
const PlanShape kFour{2, 1, 2, 0}, kTwo{1, 2, 1, 0};

struct Shrunk {
  SwitchReport report;
  std::vector<pid_t> old, next;
};

/// Switches as soon as all new programs wait; the leavers have 8 s.
Shrunk shrink(LiveJob& job, Coordinator::Options with_limit) {
  Shrunk shrunk;
  with_limit.leave_limit = 8s;
  Coordinator coordinator(LiveJob::cluster(), with_limit);
  shrunk.old = job.start(kFour);
  cr_assert(coordinator.begin(job.shims(kFour), 1).ok());
  wait_for_steps(job, 0, 5);
  shrunk.next = job.start(kTwo);
  wait_for_waiting(job, 0);
  wait_for_waiting(job, 1);
  shrunk.report = coordinator.switch_plan(job.shims(kFour), job.shims(kTwo), 2).value();
  return shrunk;
}

}  // namespace

Test(live, leavers_are_let_go_before_the_commit_where_the_rest_takes_too_long, .timeout = 300) {
  std::atomic<bool> is_let_go = false, held = false;
  LiveJob job(SWELL_EXAMPLE, 4, {"30000", "4", "12", "10", "200"}, false, [&](Hold hold) {
    held = held || hold == Hold::rest;
    return hold == Hold::rest && !is_let_go;
  });
  auto told = options();
  told.on_let_go = [&] { is_let_go = true; };
  const Shrunk shrunk = shrink(job, told);
  cr_assert(shrunk.report.committed, "%s", shrunk.report.summary().c_str());
  cr_assert(shrunk.report.has_let_go && held && shrunk.report.lost.empty());
  for (const pid_t pid : shrunk.old) cr_assert_eq(job.wait(pid), 0, "all of them leave");
  for (const pid_t pid : shrunk.next) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(job.shims(kTwo)) == unresized("30000"), "nothing was lost");
}

Test(live, where_what_only_leavers_have_is_late_the_old_generation_trains_on, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 4, kForEver, false, [](Hold hold) { return hold == Hold::verified; });
  const SwitchReport report = shrink(job, options()).report;
  cr_assert_not(report.committed || report.has_let_go);
  cr_assert_eq(report.failed_in, Phase::move);
  cr_assert_neq(report.why.find("bytes are on leaving ranks alone"), std::string::npos, "%s",
                report.why.c_str());
  for (const int shim : {0, 1, 2, 3}) wait_for_steps(job, shim, job.status(shim).step);
}

Test(live, leavers_that_are_in_time_stay_until_the_commit, .timeout = 300) {
  LiveJob job(SWELL_EXAMPLE, 4, kForEver);
  const SwitchReport report = shrink(job, options()).report;
  cr_assert(report.committed && !report.has_let_go, "%s", report.summary().c_str());
}
