// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/registry.h"

#include <chrono>
#include <criterion/criterion.h>
#include <random>

#include "core/policy/registry.h"
#include "core/policy/rivals/place_sizes.h"
#include "support/rival_views.h"

using namespace swell;
using namespace swell::policy;
using support::RivalView;

namespace {

models::Model named(const char* name) { return models::find_model(name)->model; }

struct Rival {
  std::string name;
  std::unique_ptr<SimulatedPolicy> policy;
  const SimulatedPolicy* operator->() const { return policy.get(); }
};

std::vector<Rival> rivals() {
  std::vector<Rival> made;
  for (const std::string& name : simulated_policy_names()) {
    auto policy = make_simulated_policy(name).value();
    if (policy->simulation_traits().role == Role::replaces)
      made.push_back({name, std::move(policy)});
  }
  return made;
}

struct Kind {
  const char* model;
  perf::Combination shape;
};
constexpr Kind kKinds[] = {{"gpt2-350m", {1, 1, 1, 16}},
                           {"gpt2-1.3b", {1, 4, 1, 16}},
                           {"qwen2-7b", {1, 4, 2, 16}},
                           {"llama2-13b", {1, 4, 4, 16}}};

/// A random mix of running, pending, rigid and unknown jobs on `nodes` nodes of 8.
RivalView random_view(unsigned seed, int nodes, int running, int pending) {
  std::mt19937 random(seed);
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  RivalView on(support::h100_nodes(nodes));
  JobId id = 1;
  std::vector<std::shared_ptr<Training>> known;
  for (const Kind& kind : kKinds)
    if (kind.shape.gpus() <= 8 * nodes) known.push_back(on.training(named(kind.model), kind.shape));
  const int kinds = static_cast<int>(known.size());
  int idle = 8 * nodes;
  for (int i = 0; i < running; ++i) {
    const std::size_t k = static_cast<std::size_t>(below(kinds));
    if (kKinds[k].shape.gpus() > idle) continue;
    try {
      ElasticJobView& job = on.run(id++, *known[k], kKinds[k].shape, 8 * nodes);
      idle -= kKinds[k].shape.gpus();
      job.may_grow = below(4) > 0;
      job.started_s = job.submitted_s = below(10000);
      job.reconfigurations = below(3);
      if (below(5) == 0) job.max_gpus = job.basic_gpus;
      if (job.max_gpus == job.basic_gpus) job.may_grow = false;
    } catch (const std::logic_error&) {  // its TP groups would span nodes
    }
  }
  for (int i = 0; i < pending; ++i) {
    const std::size_t k = static_cast<std::size_t>(below(kinds));
    if (below(6) == 0) on.pend_unknown(id++, 1 + below(8));
    else
      on.pend(id++, known[k], below(4) == 0 ? kKinds[k].shape.gpus() : 8 * nodes,
              10000 - below(500));
  }
  return on;
}

}  // namespace

Test(rivals, no_controller_can_load_what_replaces_the_base_scheduler) {
  for (const auto& policy : rivals()) cr_assert_not(make_policy(policy.name).ok());
  for (const auto& policy : rivals())
    cr_assert(policy->simulation_traits().redeployment == redeploy::Method::checkpoint);
  const auto missing = make_simulated_policy("suika");
  cr_assert_not(missing.ok());
  cr_assert(missing.error().message().find("there are: ") != std::string::npos, "%s",
            missing.error().message().c_str());
}

Test(rivals, what_slurmctld_runs_is_simulated_by_its_clocks) {
  for (const std::string& name : policy_names()) {
    const SimulationTraits traits = make_simulated_policy(name).value()->simulation_traits();
    cr_assert(traits.role == Role::lends, "%s", name.c_str());
    cr_assert(traits.slurmctld != SimulationTraits::Slurmctld::none, "%s", name.c_str());
    cr_assert(traits.honours_consent, "%s", name.c_str());
  }
}

Test(rivals, decide_nothing_where_gpu_types_are_not_known) {
  RivalView on(support::h100_nodes(1));
  on.pend_unknown(1, 1);
  on.view.machines = nullptr;
  for (const auto& policy : rivals()) cr_assert(policy->decide(on.view).plans.empty());
}

Test(rivals, random_views_give_plans_that_can_be_carried_out) {
  for (const auto& policy : rivals())
    for (unsigned seed = 1; seed <= 40; ++seed) {
      const RivalView on = random_view(seed, 1 + static_cast<int>(seed % 5),
                                       static_cast<int>(seed % 7), static_cast<int>(seed % 9));
      const Decisions once = policy->decide(on.view);
      try {
        support::carry_out(on, once);
      } catch (const std::logic_error& wrong) { cr_assert_fail("seed %u: %s", seed, wrong.what()); }
      const Decisions again = policy->decide(on.view);
      cr_assert_eq(once.plans.size(), again.plans.size());
      for (std::size_t i = 0; i < once.plans.size(); ++i)
        cr_assert(once.plans[i].layout == again.plans[i].layout,
                  "equal views give equal decisions");
    }
}

Test(rivals, a_rigid_or_unknown_job_starts_with_what_it_asks_for) {
  for (const auto& policy : rivals()) {
    RivalView on(support::h100_nodes(2));
    on.pend(1, on.training(named("gpt2-1.3b"), {1, 4, 1, 16}), 4);
    on.pend_unknown(2, 3);
    on.pend_unknown(3, 8);
    auto has = support::carry_out(on, policy->decide(on.view));
    cr_assert_eq(has[1], 4);
    cr_assert_eq(has[2], 3);
    cr_assert_eq(has[3], 8);
  }
}

Test(rivals, a_job_alone_gets_more_than_it_asked_for_and_an_idle_cluster_is_no_place_to_wait) {
  for (const auto& policy : rivals()) {
    RivalView on(support::h100_nodes(4));
    const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
    training->max_gpus_so_far = 16;  // before it was stopped: Sia offers twice as many
    on.pend(1, training, 32);
    // Gavel changes the type of a job's GPUs alone.
    const bool keeps_number = policy.name == "gavel";
    cr_assert_eq(support::carry_out(on, policy->decide(on.view))[1], keeps_number ? 4 : 32,
                 "4 x 8 GPUs: more replicas than samples of a micro-batch");
  }
}

Test(rivals, small_jobs_share_nodes_and_whole_nodes_are_left_to_large_ones) {
  GpuPool pool(RivalView(support::h100_nodes(2)).view);
  const auto placed = place_sizes(
      {{{{0, 2, 1}}, {}, false}, {{{0, 8, 1}}, {}, false}, {{{0, 4, 1}}, {}, false}}, pool);
  cr_assert_eq(placed[0].gpus[0].node, placed[2].gpus[0].node);
  cr_assert_neq(placed[1].gpus[0].node, placed[0].gpus[0].node);
}

Test(rivals, the_smallest_job_makes_room_and_the_rest_stay) {
  RivalView on(support::h100_nodes(2));
  GpuPool pool(on.view);
  const planner::Islands two = {{0, 0, 0b11}}, four = {{1, 0, 0b1111}}, one = {{1, 0, 0b10000}};
  for (const auto& held : {two, four, one}) pool.take(held);
  const auto placed = place_sizes({{{{0, 2, 1}}, two, true},
                                   {{{0, 4, 1}}, four, true},
                                   {{{0, 1, 1}}, one, true},
                                   {{{0, 8, 1}}, {}, false}},
                                  pool);
  cr_assert_eq(placed[3].gpus.size(), 1u);
  cr_assert_eq(placed[3].gpus[0].node, 0, "6 of node 0 are idle, 3 of node 1");
  cr_assert(placed[1].gpus == four && placed[2].gpus == one);
  cr_assert_eq(placed[0].gpus[0].node, 1);
}

Test(rivals, a_round_at_1024_gpus_takes_seconds_at_most) {
  const RivalView on = random_view(7, 128, 100, 100);
  for (const auto& policy : rivals()) {
    const auto begin = std::chrono::steady_clock::now();
    support::carry_out(on, policy->decide(on.view));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    cr_assert_lt(took.count(), 20.0, "%.1f s", took.count());
  }
}
