// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/explain.h"

#include <criterion/criterion.h>

#include "core/policy/rivals/registry.h"
#include "support/given_world.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::sim;
using support::near;
using Kind = Change::Kind;
using Why = Cause::Why;

namespace {

struct ExplainedWorld : support::GivenWorld {
  ExplainedWorld(int nodes, std::vector<Given> jobs) : GivenWorld(nodes, std::move(jobs)) {
    setup.policy = lender.get();
    setup.explain = true;
  }
  std::unique_ptr<policy::SimulatedPolicy> lender =
      policy::make_simulated_policy("fewest-first").value();
};

Change change_of(double own_delay_s, double others_delay_s, Kind kind = Kind::lent,
                 Why why = Why::gain) {
  Change change;
  change.kind = kind;
  change.cause = {why};
  change.own_delay_s = own_delay_s;
  change.others_delay_s = others_delay_s;
  return change;
}

}  // namespace

Test(explain, time_that_lending_saves_is_all_that_the_job_ends_sooner) {
  ExplainedWorld world(2, {{4, 0, 3600}});
  world.setup.clocks = Clocks{};
  const Outcome outcome = world.run();
  cr_assert_eq(outcome.changes.size(), 1u, "%zu", outcome.changes.size());
  const Change& only = outcome.changes.front();
  cr_assert(only.kind == Kind::lent);
  cr_assert(only.cause.why == Why::unprofiled, "it is lent them as it starts");
  cr_assert_eq(only.promised, 0);
  cr_assert_eq(only.gpus_before, 4);
  cr_assert_eq(only.gpus_after, 16);
  cr_assert(only.real > 1.5, "%g", only.real);
  cr_assert(near(only.until_s, outcome.jobs[0].end_s));
  cr_assert(near(only.own_delay_s, outcome.jobs[0].end_s - 3600, 1e-6), "%g", only.own_delay_s);
  cr_assert(only.own_delay_s < -1000, "%g", only.own_delay_s);
}

Test(explain, a_move_says_what_was_promised_and_how_long_the_job_stood_still) {
  const Outcome outcome = ExplainedWorld(2, {{4, 0, 3600}}).run();
  cr_assert_geq(outcome.changes.size(), 1u);
  double delay = 0, still = 0, idle = 0;
  for (const Change& change : outcome.changes) {
    delay += change.own_delay_s;
    still += change.still_s;
    idle += change.idle_gpu_s;
  }
  const Change& first = outcome.changes.front();
  cr_assert(first.cause.why == Why::gain, "without slurmctld's clocks it has a profile by then");
  cr_assert(near(first.promised, first.real, 0.1), "%g, %g", first.promised, first.real);
  cr_assert(first.still_s > 5 && first.idle_gpu_s > first.still_s * first.gpus_after);
  cr_assert(delay < -1000, "%g", delay);
  cr_assert(near(still, outcome.jobs[0].still_s, 1e-6));
  cr_assert(near(idle, outcome.lost_gpu_s, 1e-6));
}

Test(explain, a_pending_job_s_wait_is_of_the_change_that_lent_what_it_waits_for) {
  const Outcome outcome = ExplainedWorld(1, {{4, 0, 3600}, {4, 900, 600}}).run();
  double others = 0;
  bool given_back = false;
  for (const Change& change : outcome.changes) {
    others += change.others_delay_s;
    given_back =
        given_back || (change.kind == Kind::reclaimed &&
                       (change.cause.why == Why::pending_job || change.cause.why == Why::no_room));
    if (change.others_delay_s > 0) cr_assert(change.kind == Kind::lent);
  }
  cr_assert(given_back);
  cr_assert(outcome.jobs[1].waited_s > 1);
  cr_assert(near(others, outcome.jobs[1].waited_s, 0.05), "%g of %g", others,
            outcome.jobs[1].waited_s);
}

Test(explain, looking_changes_nothing_and_is_off_unless_asked_for) {
  ExplainedWorld world(2, {{4, 0, 3600}, {8, 600, 1200}, {4, 700, 900}});
  const Outcome seen = world.run();
  world.setup.explain = false;
  const Outcome unseen = world.run();
  cr_assert(!seen.changes.empty() && unseen.changes.empty());
  for (std::size_t i = 0; i < seen.jobs.size(); ++i)
    cr_assert_eq(seen.jobs[i].end_s, unseen.jobs[i].end_s);
  cr_assert(near(seen.jobs[0].still_s, unseen.jobs[0].still_s));
}

Test(explain, ten_costliest_come_first_and_reasons_are_summed_up) {
  std::vector<Outcome> outcomes(2);
  for (int i = 0; i < 12; ++i) outcomes[0].changes.push_back(change_of(i, 0));
  outcomes[1].changes = {change_of(-50, 7.5, Kind::lent, Why::unprofiled),
                         change_of(-1, 0, Kind::reclaimed, Why::slows)};
  JobOutcome job;
  job.end_s = 100;
  job.waited_s = 20;
  job.still_s = 30;
  outcomes[1].jobs = {job};
  const Explanation made = explain(outcomes);
  cr_assert_eq(made.costliest.size(), kCostliest);
  cr_assert_eq(made.costliest[0].change.own_delay_s, 11);
  cr_assert(near(made.costliest[4].change.cost_s(), 7.5),
            "time saved for one does not pay for others");
  cr_assert_eq(made.costliest[4].seed, 1u);
  cr_assert_eq(made.sums.size(), 3u);
  cr_assert(made.sums[0].why == Why::gain);
  cr_assert_eq(made.sums[0].changes, 12);
  cr_assert(near(made.sums[0].lost_s, 66));
  cr_assert(near(made.sums[1].gained_s, 50));
  cr_assert(near(made.sums[1].others_s, 7.5));
  cr_assert(near(made.waited_s, 20) && near(made.still_s, 30) && near(made.trained_s, 50));
  const std::string json = to_json(made).dump();
  cr_assert_neq(json.find("before its profile was there"), std::string::npos);
}
