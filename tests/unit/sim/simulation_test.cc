// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/simulation.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <cstdlib>

#include "core/policy/lending/fewest_first.h"
#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/lending/swell.h"
#include "core/policy/rivals/registry.h"
#include "support/given_world.h"
#include "support/plans.h"
#include "support/random_cases.h"
#include "support/small_worlds.h"

using namespace swell;
using namespace swell::sim;
using support::near;
using World = support::GivenWorld;

namespace {

/// A world whose elastic jobs consent to half of their GPUs.
struct ConsentWorld : World {
  ConsentWorld(int nodes, std::vector<Given> jobs) : World(nodes, std::move(jobs)) {
    for (JobSpec& spec : workload.jobs) spec.consents = spec.elastic;
  }
  Outcome run_under(const policy::SimulatedPolicy& policy) {
    setup.policy = &policy;
    return run();
  }
};

/// The most GPUs that a job holds at any time.
int most_held(const Outcome& outcome, std::uint32_t job) {
  int most = 0;
  for (const Holding& one : outcome.holdings)
    if (one.job == job) most = std::max(most, one.basic + one.lent);
  return most;
}

/// Time from `from_s` on at which a job first holds more than `gpus`.
double first_above_s(const Outcome& outcome, std::uint32_t job, int gpus, double from_s = 0) {
  for (const Holding& one : outcome.holdings)
    if (one.job == job && one.at_s >= from_s && one.basic + one.lent > gpus) return one.at_s;
  return 1e300;
}

int first_held(const Outcome& outcome, std::uint32_t job) {
  for (const Holding& one : outcome.holdings)
    if (one.job == job) return one.basic + one.lent;
  return 0;
}

/// Starts jobs of 8 GPUs with the 4 that they consent to, and lends nothing. They may have `max`.
struct Strict final : policy::SimulatedPolicy {
  explicit Strict(int its_max) : max(its_max) {}
  policy::Decisions decide(const policy::ClusterView& view) const override {
    for (const policy::ElasticJobView& job : view.jobs) {
      cr_assert_eq(job.basic_gpus, 4);
      cr_assert_eq(job.wanted_gpus, 8);
      cr_assert_eq(job.max_gpus, max, "its factor counts from what it wants");
    }
    return {};
  }
  policy::SimulationTraits simulation_traits() const noexcept override {
    return {.honours_consent = true};
  }
  int max;
};

/// Swell where no job consents.
struct DeafToConsent final : policy::SimulatedPolicy {
  policy::Decisions decide(const policy::ClusterView& view) const override {
    for (const policy::ElasticJobView& job : view.jobs) cr_assert_eq(job.wanted_gpus, 0);
    return swell->decide(view);
  }
  policy::SimulationTraits simulation_traits() const noexcept override {
    policy::SimulationTraits traits = swell->simulation_traits();
    traits.honours_consent = false;
    return traits;
  }
  std::unique_ptr<policy::SimulatedPolicy> swell = policy::make_simulated_policy("swell").value();
};

}  // namespace

Test(simulation, no_more_of_a_long_queue_is_looked_at_than_by_slurms_backfill) {
  struct Watching final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      longest = std::max(longest, view.queue.size());
      return {};
    }
    mutable std::size_t longest = 0;
  };
  std::vector<World::Given> jobs(620, {8, 0, 10});
  World world(1, jobs);
  const Watching policy;
  world.setup.policy = &policy;
  const Outcome outcome = world.run();
  cr_assert_eq(policy.longest, 500u);
  for (std::size_t job = 1; job < outcome.jobs.size(); ++job)
    cr_assert_geq(outcome.jobs[job].start_s, outcome.jobs[job - 1].end_s - 1e-6, "in their order");
}

Test(simulation, without_a_policy_jobs_take_their_basic_time_after_their_wait) {
  const Outcome outcome = World(1, {{8, 0, 100}, {8, 10, 100}, {8, 20, 50}}).run();
  cr_assert(near(outcome.jobs[0].end_s, 100));
  cr_assert(near(outcome.jobs[1].start_s, 100));
  cr_assert(near(outcome.jobs[1].end_s, 200));
  cr_assert(near(outcome.jobs[2].end_s, 250));
  cr_assert(near(outcome.jobs[2].waited_s, 180));
  cr_assert(near(outcome.makespan_s, 250));
  cr_assert(near(outcome.used_gpu_s, 250 * 8));
}

Test(simulation, lending_speeds_a_job_up_and_is_accounted_for) {
  World world(2, {{4, 0, 3600}});
  const auto lender = policy::make_simulated_policy("fewest-first").value();
  world.setup.policy = lender.get();
  const Outcome outcome = world.run();
  cr_assert(outcome.jobs[0].end_s < 0.6 * 3600, "%g", outcome.jobs[0].end_s);
  cr_assert(outcome.reconfigurations >= 1);
  cr_assert(outcome.lost_gpu_s > 0);
  cr_assert(near(outcome.used_gpu_s - outcome.lent_gpu_s, 4 * outcome.makespan_s, 1e-6));
}

Test(simulation, a_job_is_lent_up_to_its_factor_and_a_rival_gives_what_it_wants) {
  World world(2, {{4, 0, 3600}});
  const auto lender = policy::make_simulated_policy("fewest-first").value();
  world.setup.policy = lender.get();
  world.setup.max_factor = 2;
  const Outcome capped = world.run();
  cr_assert(capped.lent_gpu_s > 0);
  cr_assert(capped.lent_gpu_s <= 4 * capped.makespan_s, "%g GPU-seconds lent in %g s",
            capped.lent_gpu_s, capped.makespan_s);
  world.setup.max_factor = 1;
  cr_assert_eq(world.run().lent_gpu_s, 0);
  world.setup.max_factor = 0;
  cr_assert(world.run().lent_gpu_s > capped.lent_gpu_s);
  World wide(8, {{4, 0, 3600}});
  wide.setup.policy = lender.get();
  const Outcome unplanned = wide.run();
  cr_assert(unplanned.lent_gpu_s <= 12 * unplanned.makespan_s,
            "fewest-first makes no plans, so that four times the GPUs are the limit");
  const auto planner = policy::make_simulated_policy("swell").value();
  wide.setup.policy = planner.get();
  cr_assert(wide.run().lent_gpu_s > 12 * wide.run().makespan_s, "a plan says how many pay");

  /// Gives the job twice what it asked for, as rivals that replace the scheduler may.
  struct Rival final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      for (const policy::PendingDemand& demand : view.queue) seen = demand.max_gpus;
      return {};
    }
    policy::SimulationTraits simulation_traits() const noexcept override {
      return {.role = policy::Role::replaces};
    }
    mutable int seen = 0;
  } rival;
  world.setup.policy = &rival;
  world.setup.max_factor = 2;
  cr_assert_not(simulate(world.setup).ok(), "it starts no job");
  cr_assert_eq(rival.seen, 16);
}

Test(simulation, rivals_have_profiles_before_or_once_a_job_runs) {
  /// Starts jobs as their users would, and notes who is known by a profile.
  struct Rival final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      policy::Decisions decisions;
      for (const policy::PendingDemand& demand : view.queue) {
        knows_pending = demand.training->coefficients != nullptr;
        decisions.plans.push_back({demand.id, demand.training->basic});
      }
      for (const policy::ElasticJobView& job : view.jobs) {
        cr_assert_eq(job.may_grow, job.training->coefficients != nullptr);
        knows_running = job.training->coefficients != nullptr;
      }
      return decisions;
    }
    policy::SimulationTraits simulation_traits() const noexcept override {
      return {.role = policy::Role::replaces};
    }
    mutable bool knows_pending = false, knows_running = false;
  };
  for (const bool before : {true, false}) {
    World world(1, {{4, 0, 3600}});
    const Rival rival;
    world.setup.policy = &rival;
    world.setup.profiles = before ? Profiles::before : Profiles::running;
    world.run();
    cr_assert_eq(rival.knows_pending, before);
    cr_assert(rival.knows_running, "a decision follows the profile");
  }
}

Test(simulation, a_profile_before_the_start_takes_gpus_and_counts_as_waiting) {
  /// Starts each job on the first idle node; a job whose profile is missing on what it asks for.
  struct Rival final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      policy::Decisions decisions;
      const policy::NodeView& node = view.nodes.front();
      for (const policy::ElasticJobView& job : view.jobs)
        if (!job.training) cr_assert_not(job.may_grow);
      for (const policy::PendingDemand& demand : view.queue) {
        if (node.free.gpus < 4) continue;
        if (demand.training) {
          cr_assert(demand.training->coefficients != nullptr, "its profile is there");
          decisions.plans.push_back({demand.id, demand.training->basic});
        } else {
          asked.push_back(demand.per_node.gpus);
          plan::StageLayout stage{0, 1, {}};
          for (int i = 0; i < demand.per_node.gpus; ++i)
            stage.groups.push_back({0, 0, 0, plan::GpuMask{1} << i});
          decisions.plans.push_back({demand.id, {1, {stage}}});
        }
        break;
      }
      return decisions;
    }
    policy::SimulationTraits simulation_traits() const noexcept override {
      return {.role = policy::Role::replaces};
    }
    mutable std::vector<int> asked;
  };
  const auto run = [](Profiles profiles, std::vector<int>& asked, bool elastic = true) {
    World world(1, {{4, 0, 3600, elastic}});
    const Rival rival;
    world.setup.policy = &rival;
    world.setup.profiles = profiles;
    world.setup.profile_s = 1000;
    Outcome outcome = world.run();
    asked = rival.asked;
    return outcome;
  };
  std::vector<int> asked;
  const Outcome before = run(Profiles::before, asked);
  cr_assert(asked.empty());
  for (const Profiles one : {Profiles::alone, Profiles::full}) {
    const int gpus = one == Profiles::alone ? 1 : 4;
    const Outcome outcome = run(one, asked);
    cr_assert(asked == std::vector<int>{gpus});
    const JobOutcome& job = outcome.jobs[0];
    cr_assert_geq(job.waited_s, 1000);
    cr_assert_float_eq(job.waited_s - before.jobs[0].waited_s, 1000, 10);
    cr_assert_float_eq(job.end_s - before.jobs[0].end_s, 1000, 10);
    cr_assert_float_eq(outcome.profile_gpu_s, 1000.0 * gpus, 1e-6, "%f", outcome.profile_gpu_s);
    cr_assert_float_eq(outcome.used_gpu_s - before.used_gpu_s, 1000.0 * gpus, 40);
  }
  const Outcome rigid = run(Profiles::alone, asked, false);
  cr_assert(asked.empty(), "it runs with what it asks for, whatever that brings");
  cr_assert_float_eq(rigid.jobs[0].waited_s, before.jobs[0].waited_s, 10);
}

Test(simulation, policies_see_on_how_many_gpus_a_job_has_trained) {
  /// Lends, and remembers what it saw of job 1.
  struct Watcher final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      for (const policy::ElasticJobView& job : view.jobs)
        if (job.id == 1) seen.push_back(job.training->max_gpus_so_far);
      return lender.decide(view);
    }
    policy::FewestFirst lender;
    mutable std::vector<int> seen;
  } watcher;
  World world(2, {{4, 0, 7200}, {4, 600, 600}, {8, 1500, 600}});
  world.setup.policy = &watcher;
  world.run();
  cr_assert_eq(watcher.seen.front(), 4);
  cr_assert_gt(watcher.seen.back(), 4);
  cr_assert(std::is_sorted(watcher.seen.begin(), watcher.seen.end()),
            "less when GPUs were reclaimed");
}

Test(simulation, rigid_jobs_are_lent_nothing) {
  World world(2, {{4, 0, 3600, false}});
  const auto lender = policy::make_simulated_policy("fewest-first").value();
  world.setup.policy = lender.get();
  const Outcome outcome = world.run();
  cr_assert(near(outcome.jobs[0].end_s, 3600));
  cr_assert_eq(outcome.lent_gpu_s, 0);
}

Test(simulation, a_job_that_consents_starts_where_half_of_its_gpus_are_free_and_grows_to_all) {
  // 4 of 8 GPUs are free until the first job ends; the second wants 8.
  ConsentWorld world(1, {{4, 0, 1800, false}, {8, 60, 3600}});
  const auto swell = policy::make_simulated_policy("swell").value();
  const Outcome outcome = world.run_under(*swell);
  cr_assert(near(outcome.jobs[1].start_s, 60), "%g", outcome.jobs[1].start_s);
  cr_assert_eq(first_held(outcome, 2), 4);
  cr_assert_eq(most_held(outcome, 2), 8, "once the first has ended");
  cr_assert_eq(outcome.jobs[1].basic_gpus, 8, "weights of jobs do not depend on the policy");
  const Outcome waited = world.run_under(DeafToConsent());
  cr_assert(near(waited.jobs[1].start_s, 1800), "%g", waited.jobs[1].start_s);
  cr_assert_lt(outcome.jobs[1].end_s, waited.jobs[1].end_s);
}

Test(simulation, a_job_that_consents_grows_beyond_what_it_wants_as_soon_as_one_that_does_not) {
  const auto swell = policy::make_simulated_policy("swell").value();
  const auto grows_beyond_s = [&](bool consents) {
    ConsentWorld world(2, {{8, 0, 7200}});
    world.workload.jobs[0].consents = consents;
    world.setup.clocks = Clocks{.growth_interval_s = 600};
    return first_above_s(world.run_under(*swell), 1, 8);
  };
  const double asked = grows_beyond_s(false), consented = grows_beyond_s(true);
  cr_assert_lt(asked, 60, "%g", asked);
  cr_assert_leq(consented, asked + Clocks{}.grant_expiry_s, "%g after %g", consented, asked);
}

Test(simulation, owed_gpus_come_back_without_growth_interval) {
  // The second job takes half of the GPUs at 300 s, and ends long before GrowthInterval has passed.
  ConsentWorld world(1, {{8, 0, 7200}, {4, 300, 20, false}});
  world.setup.clocks = Clocks{.growth_interval_s = 2000};
  const auto swell = policy::make_simulated_policy("swell").value();
  const Outcome outcome = world.run_under(*swell);
  cr_assert_lt(first_above_s(outcome, 1, 7), 300);
  const double again = first_above_s(outcome, 1, 7, outcome.jobs[1].end_s);
  cr_assert_lt(again, outcome.jobs[1].end_s + 60, "%g", again);
}

Test(simulation, work_is_that_of_all_gpus_whatever_a_job_starts_with) {
  ConsentWorld world(2, {{4, 0, 3600, false}, {8, 0, 600}});
  world.setup.max_factor = 2;
  const JobType& type = world.workload.type_of(world.workload.jobs[1]);
  const plan::Layout all =
      basic_layout(type, *first_gpus(type.gpus, *world.cluster, 0), *world.cluster).value();
  const plan::Layout half = basic_layout(*type.least, {{0, 0x0F}}, *world.cluster).value();
  Truth truth(type, *world.cluster, world.setup.seed, 2);
  const double longer = truth.iteration_s(half) / truth.iteration_s(all);
  cr_assert(longer > 1.5 && longer < 2.2, "%g", longer);
  const Outcome outcome = world.run_under(Strict(16));
  cr_assert(near(outcome.jobs[1].end_s, 600 * longer, 1e-6), "%g", outcome.jobs[1].end_s);
}

// A job of 600 s has a limit of 900 s here. With half of its GPUs it may take nearly twice as long.
Test(simulation, the_limit_of_a_job_with_fewer_gpus_is_as_much_longer_as_it_takes) {
  ConsentWorld world(1, {{8, 0, 600}, {8, 10, 600, false}, {4, 20, 800, false}});
  world.setup.max_factor = 1;
  const Outcome outcome = world.run_under(Strict(8));
  cr_assert(near(outcome.jobs[2].start_s, 20), "it ends by its limit before the head may start: %g",
            outcome.jobs[2].start_s);
}

Test(simulation, policies_that_do_not_honour_consent_see_the_jobs_as_traced) {
  const std::vector<World::Given> jobs = {{4, 0, 1800}, {8, 60, 3600}, {4, 90, 600}};
  World usual(1, jobs);
  ConsentWorld world(1, jobs);
  const DeafToConsent lender;
  const policy::SimulatedPolicy* policies[] = {nullptr, &lender};
  for (const policy::SimulatedPolicy* policy : policies) {
    usual.setup.policy = world.setup.policy = policy;
    const Outcome before = usual.run(), after = world.run();
    cr_assert_eq(before.events, after.events);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      cr_assert_eq(before.jobs[i].start_s, after.jobs[i].start_s);
      cr_assert_eq(before.jobs[i].end_s, after.jobs[i].end_s);
    }
  }
}

Test(simulation, swell_does_as_before_where_no_job_consents) {
  const std::vector<World::Given> jobs = {{4, 0, 1800}, {8, 60, 3600}, {4, 90, 600}};
  World usual(1, jobs);
  ConsentWorld world(1, jobs);
  for (JobSpec& spec : world.workload.jobs) spec.consents = false;
  const auto swell = policy::make_simulated_policy("swell").value();
  usual.setup.policy = swell.get();
  const Outcome before = usual.run(), after = world.run_under(*swell);
  cr_assert_eq(before.events, after.events);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    cr_assert_eq(before.jobs[i].end_s, after.jobs[i].end_s);
}

Test(simulation, a_job_that_does_not_consent_starts_no_later_for_those_that_do) {
  // The last job is ordinary; the others run with all 16 GPUs when it comes, and wait without
  // consent.
  ConsentWorld world(2, {{8, 0, 1800}, {8, 10, 3600}, {8, 20, 1800}, {4, 600, 1800, false}});
  const auto swell = policy::make_simulated_policy("swell").value();
  const Outcome with = world.run_under(*swell);
  cr_assert_gt(with.lent_gpu_s, 0);
  const Outcome without = world.run_under(DeafToConsent());
  cr_assert_leq(with.jobs[3].start_s, without.jobs[3].start_s + 1, "%g after %g",
                with.jobs[3].start_s, without.jobs[3].start_s);
  cr_assert_lt(with.jobs[3].start_s, 720, "lent GPUs leave for it, wanted or not");
}

Test(simulation, a_waiting_job_gets_lent_gpus_back_after_the_reclaim) {
  World world(1, {{4, 0, 7200}, {4, 1000, 600}});
  const auto lender = policy::make_simulated_policy("fewest-first").value();
  world.setup.policy = lender.get();
  const Outcome outcome = world.run();
  const double waited = outcome.jobs[1].start_s - 1000;
  cr_assert(waited > 0.5, "a decision and a pause lie between: %g", waited);
  cr_assert(waited < 120, "%g", waited);
  cr_assert(near(outcome.jobs[1].waited_s, waited));
}

Test(simulation, without_a_policys_help_slurm_preempts_companions) {
  /// Lends once and never reclaims.
  struct Stubborn final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      policy::Decisions decisions;
      for (const auto& job : view.jobs)
        if (job.may_grow && job.companions.empty() && view.queue.empty() &&
            view.nodes[0].free.gpus >= 4)
          decisions.grants.push_back({job.id, 0, job.per_worker * 4});
      return decisions;
    }
  };
  World world(1, {{4, 0, 7200}, {4, 1000, 600}});
  const Stubborn lender;
  world.setup.policy = &lender;
  const Outcome outcome = world.run();
  cr_assert(outcome.jobs[1].start_s < 1120, "%g", outcome.jobs[1].start_s);
  cr_assert(outcome.jobs[0].reconfigurations >= 2);
}

Test(simulation, a_whole_node_job_starts_only_where_another_is_moved_out_of_its_way) {
  // Job 2 leaves 4 GPUs on one node; jobs 1 and 3 hold 4 of each node for two hours.
  World world(2, {{4, 0, 7200}, {4, 1, 600}, {4, 2, 7200}, {8, 900, 600}});
  /// Suika without its last resort.
  struct Stays final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      return suika.decide(view);
    }
    policy::MarginalBenefit suika;
  };
  const auto suika = policy::make_simulated_policy("marginal-benefit").value();
  world.setup.policy = suika.get();
  const Outcome moved = world.run();
  cr_assert_geq(moved.migrations, 1);
  cr_assert_lt(moved.jobs[3].start_s, 1100, "%g", moved.jobs[3].start_s);
  const Stays stays;
  world.setup.policy = &stays;
  const Outcome stayed = world.run();
  cr_assert_eq(stayed.migrations, 0);
  cr_assert_gt(stayed.jobs[3].start_s, 3000, "%g", stayed.jobs[3].start_s);
}

Test(simulation, a_job_that_falls_short_of_its_promise_gives_back_what_it_is_lent) {
  int given_back = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(2, {{4, 0, 7200}});
    const auto lender = policy::make_simulated_policy("fewest-first").value();
    world.setup.policy = lender.get();
    world.setup.seed = seed;
    cr_assert_eq(world.run().given_back, 0, "predictions are good");
    world.setup.prediction_error = 0.9;
    given_back += world.run().given_back;
  }
  cr_assert_gt(given_back, 0);
}

Test(simulation, an_unsound_plan_ends_the_run_with_one_error) {
  struct Cheat final : policy::SimulatedPolicy {
    policy::Decisions decide(const policy::ClusterView& view) const override {
      policy::Decisions decisions;
      for (const auto& job : view.jobs)
        if (job.may_grow) {
          plan::Layout layout = job.training->current;
          --layout.stages[0].layers;
          decisions.plans.push_back({job.id, layout});
        }
      return decisions;
    }
  };
  World world(1, {{4, 0, 7200}});
  const Cheat cheat;
  world.setup.policy = &cheat;
  const auto outcome = simulate(world.setup);
  cr_assert_not(outcome.ok());
  cr_assert(outcome.error().message().find("layers") != std::string::npos, "%s",
            outcome.error().message().c_str());
}

Test(simulation, equal_seeds_give_equal_outcomes) {
  for (std::uint64_t seed : {4, 5}) {
    const auto world = support::make_world(seed);
    const auto a = simulate(world->setup), b = simulate(world->setup);
    cr_assert(a.ok() && b.ok());
    cr_assert_eq(a->events, b->events);
    cr_assert_eq(a->lost_gpu_s, b->lost_gpu_s);
    for (std::size_t i = 0; i < a->jobs.size(); ++i)
      cr_assert_eq(a->jobs[i].end_s, b->jobs[i].end_s);
  }
}

Test(simulation, no_random_policy_breaks_an_invariant_or_loses_a_job, .timeout = 3600) {
  const char* asked = std::getenv("SWELL_STRESS_SEEDS");
  const int seeds = asked ? std::atoi(asked) : support::random_cases(1000);
  for (int seed = 1; seed <= seeds; ++seed) {
    const std::string wrong = support::stress(static_cast<std::uint64_t>(seed));
    cr_assert(wrong.empty(), "seed %d: %s", seed, wrong.c_str());
  }
}
