// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that are lent GPUs while their first workers start.
#include <algorithm>
#include <criterion/criterion.h>
#include <optional>

#include "core/plan/validate.h"
#include "core/policy/rivals/registry.h"
#include "core/redeploy/redeployment.h"
#include "sim/simulation.h"
#include "support/given_world.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::sim;
using support::GivenWorld;
using support::near;

namespace {

constexpr double kDecision_s = 0.5;        // with a fixed decision time
constexpr double kProfileIterations = 10;  // until a profile is there

/// Job 1 of 4 GPUs on one node, and what it does there with 4 and with 8.
struct Lone : GivenWorld {
  explicit Lone(std::vector<Given> jobs) : GivenWorld(1, std::move(jobs)) {
    const JobType& type = workload.type_of(workload.jobs[0]);
    basic = basic_layout(type, {{0, 0x0F}}, *cluster).value();
    doubled = best_symmetric_layout(type, *type.expected, {{0, 0xFF}}, *cluster).value();
    Truth truth(type, *cluster, setup.seed, 1);
    basic_s = truth.iteration_s(basic);
    doubled_s = truth.iteration_s(doubled);
    iterations = workload.jobs[0].basic_s / basic_s;
    cr_assert_eq(doubled.gpu_count(), 8);
    cr_assert_lt(doubled_s, 0.8 * basic_s);
  }
  plan::Layout basic, doubled;
  double basic_s = 0, doubled_s = 0;  ///< of an iteration
  double iterations = 0;
};

/// Gives a starting job a plan on the whole node, takes the GPUs back when another waits, and notes
/// what it saw.
struct AtStart final : policy::SimulatedPolicy {
  explicit AtStart(plan::Layout its_plan) : plan(std::move(its_plan)) {}
  policy::SimulatedDecisions simulate(const policy::ClusterView& view) const override {
    return {decide(view), {}, search_s};
  }
  policy::Decisions decide(const policy::ClusterView& view) const override {
    policy::Decisions decisions;
    if (view.jobs.empty()) return decisions;
    const policy::ElasticJobView& job = view.jobs[0];
    if (job.training->coefficients) {
      if (!profiled_s) profiled_s = view.now_s;
      if (profiles.empty() || profiles.back() != job.training->coefficients)
        profiles.push_back(job.training->coefficients);
    }
    if (!view.queue.empty()) {
      for (const auto& companion : job.companions)
        if (!companion.leaving)
          decisions.reclaims.push_back({job.id, companion.id, view.queue[0].id});
    } else if (job.starting && job.companions.empty()) {
      decisions.grants.push_back({job.id, 0, job.per_worker * 4});
      decisions.plans.push_back({job.id, plan});
    }
    return decisions;
  }
  policy::SimulationTraits simulation_traits() const noexcept override {
    return {.lends_at_start = true};
  }

  plan::Layout plan;
  double search_s = 0;
  mutable std::optional<double> profiled_s;  ///< when a profile was first seen
  mutable std::vector<std::shared_ptr<const perf::Coefficients>> profiles;
};

double first_lent_s(const Outcome& outcome, std::uint32_t job) {
  for (const Holding& holding : outcome.holdings)
    if (holding.job == job && holding.lent > 0) return holding.at_s;
  return 1e300;
}

}  // namespace

Test(starting, a_job_starts_anew_on_its_new_plan_and_what_it_did_before_is_void) {
  Lone world({{4, 0, 3600}});
  AtStart lender(world.doubled);
  lender.search_s = 5;
  world.setup.policy = &lender;
  const Outcome outcome = world.run();
  cr_assert_gt(kProfileIterations * world.basic_s, 5, "or it is not starting any more");
  cr_assert(near(first_lent_s(outcome, 1), 5));
  const double by_hand = 5 + world.iterations * world.doubled_s;
  cr_assert(near(outcome.jobs[0].end_s, by_hand, 1e-6), "%g, not %g", outcome.jobs[0].end_s,
            by_hand);
  cr_assert_eq(outcome.reconfigurations, 0);
  cr_assert_eq(outcome.lost_gpu_s, 0);
}

Test(starting, the_fastest_plan_by_restarts_keeps_cp) {
  const Lone world({{4, 0, 3600}});
  JobType type = world.workload.types.front();
  models::Model model = *type.model;
  model.sequence = 3 * 1024;
  model.cp = 3;
  cr_assert(models::check(model).ok());
  type.model = std::make_shared<models::Model>(model);
  const auto coefficients = perf::expected_coefficients(model, *world.cluster);
  const auto layout = best_symmetric_layout(type, coefficients, {{0, 0x3F}}, *world.cluster);
  cr_assert(layout.has_value());
  const plan::Plan plan = plan::name_all(*layout, *world.cluster, model);
  const auto valid = plan::validate(plan, model, *world.cluster);
  cr_assert(valid.ok(), "%s", valid.ok() ? "" : valid.error().message().c_str());
  cr_assert_eq(plan.gpu_count(), 6);
}

Test(starting, one_profile_comes_and_it_is_of_the_new_workers) {
  Lone world({{4, 0, 3600}});
  AtStart lender(world.doubled);
  lender.search_s =
      0.9 * kProfileIterations * world.basic_s;  // just before the first workers' profile
  world.setup.policy = &lender;
  cr_assert_lt(lender.search_s, redeploy::kInitialize_s, "or it is not starting any more");
  world.run();
  cr_assert(lender.profiled_s.has_value());
  const double by_hand = lender.search_s + kProfileIterations * world.doubled_s;
  cr_assert(near(*lender.profiled_s, by_hand, 1e-6), "%g, not %g", *lender.profiled_s, by_hand);
  cr_assert_eq(lender.profiles.size(), 1u);
}

Test(starting, a_reclaim_right_after_the_start_loses_no_work) {
  Lone world({{4, 0, 3600}, {4, 1, 600, false}});
  const AtStart lender(world.doubled);
  world.setup.policy = &lender;
  const Outcome outcome = world.run();
  // Lent at 0.5 s; job 2 comes at 1 s and the decision for it at 1.5 s; the move back starts with
  // 25 s of new workers' initialization, while the old ones train.
  const JobType& type = world.workload.type_of(world.workload.jobs[0]);
  const auto cost = redeploy::cost_of(redeploy::Method::local_reuse, *type.expected, world.doubled,
                                      world.basic, *world.cluster);
  const double moved_s = 1 + kDecision_s + cost.delay_s + cost.pause_s;
  cr_assert(near(outcome.jobs[1].start_s, moved_s, 1e-6), "%g, not %g", outcome.jobs[1].start_s,
            moved_s);
  const double done = (1 + kDecision_s + cost.delay_s - kDecision_s) / world.doubled_s;
  const double by_hand = moved_s + (world.iterations - done) * world.basic_s;
  cr_assert(near(outcome.jobs[0].end_s, by_hand, 1e-6), "%g, not %g", outcome.jobs[0].end_s,
            by_hand);
  cr_assert(near(outcome.jobs[1].end_s, moved_s + 600, 1e-6));
  cr_assert_eq(outcome.reconfigurations, 1);
}

Test(starting, swell_lends_at_the_start_and_marginal_benefit_after_the_profile) {
  Lone world(
      {{4, 0, 3600}, {8, 1, 600, false}});  // the second has the policy decide again, and waits
  const auto swell = policy::make_simulated_policy("swell").value();
  world.setup.policy = swell.get();
  const Outcome at_once = world.run();
  cr_assert(near(first_lent_s(at_once, 1), kDecision_s), "%g", first_lent_s(at_once, 1));
  const auto marginal = policy::make_simulated_policy("marginal-benefit").value();
  world.setup.policy = marginal.get();
  const Outcome later = world.run();
  cr_assert_geq(first_lent_s(later, 1), kProfileIterations * world.basic_s);
  cr_assert_lt(first_lent_s(later, 1), 1e6);
  cr_assert_eq(at_once.out_of_memory + later.out_of_memory, 0);
  // Lent at the start it ends 2 % later here under the judge made from measurements; why is not
  // known.
  cr_assert_lt(at_once.jobs[0].end_s, 1.03 * later.jobs[0].end_s, "%g, %g", at_once.jobs[0].end_s,
               later.jobs[0].end_s);
}

Test(starting, a_rigid_job_is_left_alone) {
  Lone world({{4, 0, 3600, false}});
  const auto swell = policy::make_simulated_policy("swell").value();
  world.setup.policy = swell.get();
  const Outcome outcome = world.run();
  cr_assert_eq(outcome.lent_gpu_s, 0);
  cr_assert(near(outcome.jobs[0].end_s, 3600));
}
