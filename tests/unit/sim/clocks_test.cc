// SPDX-License-Identifier: GPL-2.0-or-later
// Lending as slurmctld does it: its clocks, and jobs that have no profile yet.
#include <algorithm>
#include <criterion/criterion.h>
#include <vector>

#include "core/policy/growth_hold.h"
#include "core/policy/rivals/registry.h"
#include "core/policy/rivals/suika_dp.h"
#include "sim/simulation.h"
#include "support/given_world.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::sim;
using support::GivenWorld;
using support::near;
using Slurmctld = policy::SimulationTraits::Slurmctld;

namespace {

constexpr double kDecision_s = 0.5;  // with a fixed decision time

/// Lends the only job one GPU more of its node whenever it may grow; takes all back when a job
/// waits. Notes when it could.
struct OneByOne final : policy::SimulatedPolicy {
  explicit OneByOne(Slurmctld its_way) : way(its_way) {}
  policy::Decisions decide(const policy::ClusterView& view) const override {
    policy::Decisions decisions;
    if (view.jobs.empty()) return decisions;
    const policy::ElasticJobView& job = view.jobs[0];
    if (!view.queue.empty()) {
      for (const auto& companion : job.companions)
        if (!companion.leaving)
          decisions.reclaims.push_back({job.id, companion.id, view.queue[0].id});
    } else if (job.may_grow && view.nodes[0].free.gpus > 0) {
      grown_s.push_back(view.now_s);
      decisions.grants.push_back({job.id, 0, job.per_worker});
    }
    return decisions;
  }
  policy::SimulationTraits simulation_traits() const noexcept override {
    return {.slurmctld = way};
  }
  Slurmctld way;
  mutable std::vector<double> grown_s;
};

std::vector<double> growths_of(Slurmctld way, std::optional<Clocks> clocks,
                               std::vector<GivenWorld::Given> jobs = {{4, 0, 7200}},
                               int nodes = 1) {
  GivenWorld world(nodes, std::move(jobs));
  const OneByOne lender(way);
  world.setup.policy = &lender;
  world.setup.clocks = clocks;
  world.run();
  return lender.grown_s;
}

double first_lent_s(const Outcome& outcome, std::uint32_t job) {
  for (const Holding& holding : outcome.holdings)
    if (holding.job == job && holding.lent > 0) return holding.at_s;
  return 1e300;
}

Outcome run_under(const policy::SimulatedPolicy& policy, std::optional<Clocks> clocks) {
  // The second has the policy decide again, and waits.
  GivenWorld world(1, {{4, 0, 3600}, {8, 1, 600, false}});
  world.setup.policy = &policy;
  world.setup.clocks = clocks;
  return world.run();
}

}  // namespace

Test(clocks, a_job_grows_again_once_the_longer_of_interval_and_expiry_has_passed) {
  for (const auto& [interval_s, expiry_s] : {std::pair{200.0, 15.0}, {15.0, 200.0}}) {
    const auto grown = growths_of(Slurmctld::as_it_starts, Clocks{interval_s, expiry_s, 10, 2});
    cr_assert_geq(grown.size(), 3u);
    for (std::size_t i = 1; i < grown.size(); ++i) {
      cr_assert_geq(grown[i] - grown[i - 1], 200);
      cr_assert_lt(grown[i] - grown[i - 1], 202, "nothing else keeps it, nothing else wakes it");
    }
  }
}

Test(clocks, a_job_that_gave_gpus_back_grows_again_an_interval_after_they_were_free) {
  const Clocks clocks{200, 15, 10, 2};
  const auto grown =
      growths_of(Slurmctld::as_it_starts, clocks, {{4, 0, 7200}, {4, 300, 20, false}});
  // The second job takes what is lent when it comes at 300 s; it is there for 20 s.
  const auto after = std::find_if(grown.begin(), grown.end(), [](double at) { return at > 300; });
  cr_assert(after != grown.end());
  cr_assert_geq(*after, 300 + kDecision_s + 200);
}

Test(clocks, policies_that_slurmctld_does_not_run_know_none_of_them) {
  // The second job's profile has the policy decide again.
  const std::vector<GivenWorld::Given> jobs = {{4, 0, 7200}, {8, 40, 7200}};
  const Clocks clocks{200, 15, 10, 2};
  const auto grown = growths_of(Slurmctld::none, clocks, jobs, 2);
  const auto kept = growths_of(Slurmctld::as_it_starts, clocks, jobs, 2);
  cr_assert_geq(grown.size(), 2u);
  cr_assert_lt(grown[1] - grown[0], 200);
  cr_assert_geq(kept[1] - kept[0], 200);
  cr_assert(policy::make_suika_dp()->simulation_traits().slurmctld == Slurmctld::none);
}

Test(clocks, fewest_first_lends_before_there_is_a_profile_and_the_job_begins_with_it) {
  const Outcome outcome =
      run_under(*policy::make_simulated_policy("fewest-first").value(), Clocks{});
  cr_assert(near(first_lent_s(outcome, 1), kDecision_s), "%g", first_lent_s(outcome, 1));
  cr_assert_eq(outcome.reconfigurations, 0, "its program waits for a first offer");
}

Test(clocks, offers_after_the_first_are_changes_of_plan) {
  Clocks clocks;
  clocks.first_offer_s = 0;
  cr_assert_eq(
      run_under(*policy::make_simulated_policy("fewest-first").value(), clocks).reconfigurations,
      1);
}

Test(clocks, policies_that_plan_wait_for_a_profile_and_no_longer_than_profile_wait) {
  const auto swell = policy::make_simulated_policy("swell").value();
  const auto marginal = policy::make_simulated_policy("marginal-benefit").value();
  for (const policy::SimulatedPolicy* each : {swell.get(), marginal.get()}) {
    Clocks clocks;
    clocks.profile_wait_s = 0.05;  // its first iteration takes longer than the wait for one
    const double lent_s = first_lent_s(run_under(*each, clocks), 1);
    cr_assert(near(lent_s, policy::kFirstStepWaits * 0.05 + kDecision_s), "%g", lent_s);
    clocks.profile_wait_s = 3;
    cr_assert_gt(first_lent_s(run_under(*each, clocks), 1), 3 + 2 * kDecision_s, "by its profile");
  }
  cr_assert_lt(first_lent_s(run_under(*swell, std::nullopt), 1), 1,
               "by data sheets, without clocks");
}

Test(clocks, moves_cost_what_was_measured_under_what_slurmctld_runs_alone) {
  const auto ends = [](const policy::SimulatedPolicy& policy,
                       std::optional<redeploy::Measured> redeployment,
                       bool rivals_as_measured = false) {
    GivenWorld world(1, {{4, 0, 3600}});
    world.setup.policy = &policy;
    world.setup.clocks = Clocks{.first_offer_s = 0};
    world.setup.redeployment = redeployment;
    world.setup.rivals_as_measured = rivals_as_measured;
    return world.run().jobs[0].end_s;
  };
  // One growth, and nothing comes after it: the pauses alone differ.
  const auto fewest = policy::make_simulated_policy("fewest-first").value();
  const double live = ends(*fewest, redeploy::Measured::live);
  const double restart = ends(*fewest, redeploy::Measured::restart);
  const double suika = ends(*fewest, std::nullopt);
  cr_assert(near(suika - live, 9 - 0.54, 1e-3), "%g", suika - live);
  cr_assert_gt(restart - live, 33 - 25, "%g", restart - live);
  const auto rival = policy::make_suika_dp();
  cr_assert_eq(ends(*rival, redeploy::Measured::restart), ends(*rival, std::nullopt));
  // Under all policies, where that is asked for.
  const double rival_live = ends(*rival, redeploy::Measured::live, true);
  const double rival_restart = ends(*rival, redeploy::Measured::restart, true);
  cr_assert_gt(rival_restart - rival_live, 33 - 25, "%g", rival_restart - rival_live);
  cr_assert_eq(ends(*rival, std::nullopt, true), ends(*rival, std::nullopt));
  cr_assert_eq(ends(*fewest, redeploy::Measured::restart, true), restart);
}

Test(clocks, a_job_that_was_lent_gpus_without_a_profile_reports_one_of_its_new_plan) {
  GivenWorld world(1, {{4, 0, 3600}});
  struct Watch final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      for (const auto& job : view.jobs) knew = knew || job.training != nullptr;
      return policy->decide(view);
    }
    policy::SimulationTraits simulation_traits() const noexcept override {
      return policy->simulation_traits();
    }
    std::unique_ptr<policy::SimulatedPolicy> policy =
        policy::make_simulated_policy("swell").value();
    mutable bool knew = false;
  } watch;
  Clocks clocks;
  clocks.profile_wait_s = 0;
  world.setup.policy = &watch;
  world.setup.clocks = clocks;
  const Outcome outcome = world.run();
  cr_assert(near(first_lent_s(outcome, 1), kDecision_s));
  cr_assert(watch.knew);
}

Test(clocks, a_profile_comes_after_as_many_steps_as_programs_need) {
  const auto swell = policy::make_simulated_policy("swell").value();
  const auto lent_s = [&](int steps) {
    GivenWorld world(1, {{4, 0, 3600}});
    world.setup.policy = swell.get();
    world.setup.clocks = Clocks{.profile_wait_s = 3000};
    world.setup.reporting.steps = steps;
    return first_lent_s(world.run(), 1) - kDecision_s;
  };
  cr_assert(near(lent_s(60), 6 * lent_s(10), 1e-6), "%g and %g", lent_s(60), lent_s(10));
}

Test(clocks, policies_see_what_changes_of_plan_have_cost) {
  struct Watch final : policy::SimulatedPolicy {
    explicit Watch(bool one_by_one) : policy(Slurmctld::as_it_starts), asks(one_by_one) {}
    policy::Decisions decide(const policy::ClusterView& view) const override {
      for (const auto& job : view.jobs) {
        if (job.measured_cost) seen = job.measured_cost;
        method = job.method;
      }
      return asks ? policy.decide(view) : policy::Decisions{};
    }
    policy::SimulationTraits simulation_traits() const noexcept override {
      return policy.simulation_traits();
    }
    OneByOne policy;
    bool asks;
    mutable std::optional<redeploy::Cost> seen;
    mutable redeploy::Method method = redeploy::Method::device_to_device;
  };
  const auto run = [](std::optional<redeploy::Measured> redeployment, bool asks) {
    GivenWorld world(1, {{4, 0, 3600}});
    auto watch = std::make_unique<Watch>(asks);
    world.setup.policy = watch.get();
    world.setup.clocks = Clocks{.first_offer_s = 0};
    world.setup.redeployment = redeployment;
    world.run();
    return watch;
  };
  const auto live = run(redeploy::Measured::live, true);
  cr_assert(live->seen.has_value());
  cr_assert(live->seen->pause_s >= 0.54 && live->seen->pause_s < 5, "%g", live->seen->pause_s);
  cr_assert(live->method == redeploy::Method::local_reuse);
  const auto restart = run(redeploy::Measured::restart, true);
  cr_assert_gt(restart->seen->pause_s, 30);
  cr_assert(restart->method == redeploy::Method::checkpoint);
  cr_assert_not(run(redeploy::Measured::live, false)->seen, "nothing changed");
  const auto model = run(std::nullopt, true);
  cr_assert_not(model->seen);
  cr_assert(model->method == redeploy::Method::local_reuse);
}
