// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/reclaimer.h"

#include <criterion/criterion.h>
#include <string>
#include <vector>

#include "unit/controller/fakes.h"

namespace swell::test {
namespace {

using controller::Companion;
using controller::ElasticJob;

/// A reclaimer over job 100, whose agent has connection 7, with companion 200 of 4 GPUs.
struct Lent {
  FakeSlurm slurm{2};
  FakeServer server;
  controller::GrantBook book;
  std::vector<std::string> said;
  controller::LoopState loop{
      .config = {},
      .slurm = slurm,
      .book = book,
      .events = controller::EventLog("", [this](const std::string& line) { said.push_back(line); }),
      .sessions = controller::AgentSessions(server)};
  controller::Reclaimer reclaimer{loop};
  ElasticJob& job = loop.jobs[100];

  Lent() {
    loop.config.growth_interval_s = 10;
    job.id = 100;
    job.uid = 1000;
    job.spec.grace_s = 20;
    job.agent.connect(7, 0);
    Companion companion;
    companion.id = 200;
    companion.grant = "nonce";
    companion.node = "node2";
    companion.gpus = {4, "h100", "0-3"};
    job.companions.add(companion);
    slurm.run(200, "node2", 4, "swell[parent=100 grant=nonce]");
  }
  Companion& companion() { return *job.companions.find(200); }
};

}  // namespace

Test(reclaimer, reclaim_gives_the_grace_of_the_job_and_tells_its_agent) {
  Lent lent;
  lent.reclaimer.reclaim(lent.job, lent.companion(), 50, "limit", "a limit");
  cr_assert(lent.companion().is_leaving());
  cr_assert_float_eq(lent.companion().departure().deadline(), 70, 1e-9);
  cr_assert_eq(lent.job.lending.taken_back(), "a limit");
  cr_assert_float_eq(lent.job.offers.times().grows_after, 60, 1e-9);
  const control::Shrink* told = lent.server.last<control::Shrink>();
  cr_assert_not_null(told);
  cr_assert_eq(told->companions.at(0), 200u);
  cr_assert_eq(told->deadline_s, 20);
  cr_assert_eq(told->reason, "a limit");
}

Test(reclaimer, leave_tells_nobody) {
  Lent lent;
  lent.reclaimer.leave(lent.job, lent.companion(), 50, "agent", "unknown", 55);
  cr_assert_float_eq(lent.companion().departure().deadline(), 55, 1e-9);
  cr_assert_eq(lent.server.count<control::Shrink>(), 0u);
}

Test(reclaimer, reclaim_at_once_leaves_no_time) {
  Lent lent;
  lent.reclaimer.reclaim_at_once(lent.job, lent.companion(), 50, "agent", "suspended");
  cr_assert_float_eq(lent.companion().departure().deadline(), 50, 1e-9);
  cr_assert_eq(lent.server.last<control::Shrink>()->deadline_s, 0);
}

Test(reclaimer, keep_deadlines_cancels_what_is_there_after_its_deadline) {
  Lent lent;
  lent.reclaimer.reclaim(lent.job, lent.companion(), 50, "limit", "a limit");
  lent.reclaimer.keep_deadlines(lent.job, 70.5);
  cr_assert(lent.slurm.cancelled.empty(), "the agent has its whole grace");
  lent.reclaimer.keep_deadlines(lent.job, 71);
  cr_assert_eq(lent.slurm.cancelled, std::vector<JobId>{200});
}

Test(reclaimer, keep_deadlines_ends_companions_of_a_job_without_an_agent) {
  Lent lent;
  lent.job.agent.lose(50);
  lent.reclaimer.keep_deadlines(lent.job, 50 + lent.loop.config.agent_timeout_s - 1);
  cr_assert_not(lent.companion().is_leaving());
  lent.reclaimer.keep_deadlines(lent.job, 50 + lent.loop.config.agent_timeout_s);
  cr_assert_eq(lent.slurm.cancelled, std::vector<JobId>{200});
}

Test(reclaimer, cancel_ends_no_job_that_only_has_the_id) {
  for (const char* comment :
       {"swell[parent=100 grant=other]", "swell[parent=101 grant=nonce]", ""}) {
    Lent lent;
    lent.slurm.find(200)->admin_comment = comment;
    lent.reclaimer.cancel(lent.job.identity(lent.companion()), "a test");
    cr_assert(lent.slurm.cancelled.empty(), "%s", comment);
  }
  Lent lent;
  lent.reclaimer.cancel(lent.job.identity(lent.companion()), "a test");
  cr_assert_eq(lent.slurm.cancelled, std::vector<JobId>{200});
}

}  // namespace swell::test
