// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/arena.h"

#include <algorithm>
#include <bit>
#include <criterion/criterion.h>
#include <random>
#include <set>

#include "core/policy/rivals/arena_jobs.h"
#include "core/policy/rivals/registry.h"
#include "support/rival_views.h"

using namespace swell;
using namespace swell::policy;
using support::RivalView;

namespace {

models::Model named(const char* name) { return models::find_model(name)->model; }

/// Options that keep what runs where it is, but for what a launch needs.
Arena::Options quiet() {
  Arena::Options options;
  options.min_gain = 10;
  options.migration_s = 0;
  return options;
}

constexpr double kOld_s = -1e6, kYoung_s = 9990;

/// A job whose training is not known, submitted at `at_s`.
void pend_rigid(RivalView& on, JobId id, int gpus, double at_s) {
  on.pend_unknown(id, gpus);
  on.view.queue.back().submitted_s = at_s;
}

std::string why(const Parameters& given) {
  const auto made = make_simulated_policy("arena", {.parameters = given});
  return made ? "" : made.error().message();
}

/// GPUs of each type that each job has once `decisions` are carried out.
std::map<JobId, std::map<int, int>> by_type(const RivalView& on, const Decisions& decisions) {
  support::carry_out(on, decisions);
  std::map<JobId, std::map<int, int>> has;
  std::set<JobId> planned;
  for (const NewPlan& plan : decisions.plans) {
    planned.insert(plan.job);
    for (const auto& stage : plan.layout.stages)
      for (const auto& group : stage.groups)
        for (plan::GpuMask left = group.gpus; left != 0; left &= left - 1)
          ++has[plan.job][on.machines->type_of({group.node, std::countr_zero(left)})];
  }
  for (const ElasticJobView& job : on.view.jobs)
    for (std::size_t i = 0; i < job.basic_nodes.size() && !planned.contains(job.id); ++i)
      for (plan::GpuMask left = job.basic_gpu_masks[i]; left != 0; left &= left - 1)
        ++has[job.id][on.machines->type_of({job.basic_nodes[i], std::countr_zero(left)})];
  return has;
}

double speed_at(const RivalView& on, const std::shared_ptr<Training>& training, int type,
                int gpus) {
  CurveCache curves;
  for (const auto& row :
       *curves.get(training, on.machines, type, {}, on.machines->gpu_count(), Sizes::powers_of_two))
    if (row.gpus == gpus) return row.throughput;
  return 0;
}

}  // namespace

Test(arena, a_job_starts_in_the_last_queue_and_rises_by_one_each_time_it_has_waited) {
  cr_assert_eq(queue_after(0, 3, 100), 3);
  cr_assert_eq(queue_after(99, 3, 100), 3);
  cr_assert_eq(queue_after(100, 3, 100), 2);
  cr_assert_eq(queue_after(200, 3, 100), 1);
  cr_assert_eq(queue_after(1e300, 3, 100), 1);
  cr_assert_eq(queue_after(-5, 3, 100), 3, "submitted after the view was made");
  cr_assert_eq(queue_after(1e9, 1, 1), 1);
}

Test(arena, a_promoted_job_starts_before_one_that_came_first_in_the_queues_order) {
  RivalView on(support::h100_nodes(1));
  pend_rigid(on, 1, 8, kYoung_s);
  pend_rigid(on, 2, 8, kOld_s);
  const auto has = support::carry_out(on, Arena(quiet()).decide(on.view));
  cr_assert(has.contains(2) && !has.contains(1));
}

// Line 9: a job of a later queue that fails ends the step; one of the blocked queue does not.
Test(arena, behind_a_blocked_queue_jobs_start_until_the_first_that_cannot) {
  RivalView on(support::h100_nodes(1));
  pend_rigid(on, 1, 9, kOld_s);  // never fits: blocks queue 1
  pend_rigid(on, 2, 2, kOld_s);
  pend_rigid(on, 3, 2, kYoung_s);
  pend_rigid(on, 4, 9, kYoung_s);
  pend_rigid(on, 5, 2, kYoung_s);
  const auto has = support::carry_out(on, Arena(quiet()).decide(on.view));
  cr_assert(has.contains(2), "of the blocked queue");
  cr_assert(has.contains(3), "of a later queue, on idle GPUs");
  cr_assert(!has.contains(5), "the later queue was blocked too");
}

Test(arena, only_the_blocked_queue_has_running_jobs_scaled_down) {
  for (const bool old : {true, false}) {
    RivalView on(support::h100_nodes(1));
    const auto training = on.training(named("gpt2-350m"), {1, 8, 1, 16});
    on.run(1, *training, {1, 8, 1, 16}, 16);
    pend_rigid(on, 2, 9, kOld_s);
    pend_rigid(on, 3, 4, old ? kOld_s : kYoung_s);
    const auto has = support::carry_out(on, Arena(quiet()).decide(on.view));
    cr_assert_eq(has.contains(3), old);
    cr_assert_eq(has.at(1), old ? 4 : 8);
  }
}

Test(arena, a_launch_takes_no_more_changes_than_the_depth_or_none_at_all) {
  // The first change frees 4 of 8 GPUs, the second one 2 of 4.
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-350m"), {1, 8, 1, 16});
  on.run(1, *training, {1, 8, 1, 16}, 16);
  pend_rigid(on, 3, 6, kYoung_s);
  for (const int depth : {1, 2}) {
    Arena::Options options = quiet();
    options.depth = depth;
    auto has = support::carry_out(on, Arena(options).decide(on.view));
    cr_assert_eq(has[3], depth == 2 ? 6 : 0);
    cr_assert_eq(has[1], depth == 2 ? 2 : 8, "undone where it does not suffice");
  }
}

Test(arena, the_one_change_of_a_launch_is_the_best_of_all) {
  const char* const kModels[] = {"gpt2-350m", "gpt2-1.3b", "bert-large"};
  int distinct = 0;
  for (const char* one : kModels)
    for (const char* other : kModels) {
      RivalView on(support::h100_nodes(1));
      const auto a = on.training(named(one), {1, 4, 1, 16}),
                 b = on.training(named(other), {1, 4, 1, 16});
      on.run(1, *a, {1, 4, 1, 16}, 8);
      on.run(2, *b, {1, 4, 1, 16}, 8);
      pend_rigid(on, 3, 2, kYoung_s);
      Arena::Options options = quiet();
      options.depth = 1;
      auto has = support::carry_out(on, Arena(options).decide(on.view));
      const double lost_a = speed_at(on, a, 0, 4) - speed_at(on, a, 0, 2),
                   lost_b = speed_at(on, b, 0, 4) - speed_at(on, b, 0, 2);
      cr_assert(lost_a > 0 && lost_b > 0);
      cr_assert_eq(has[3], 2);
      cr_assert_eq(has[lost_a <= lost_b ? 1 : 2], 2, "%s, %s", one, other);
      cr_assert_eq(has[lost_a <= lost_b ? 2 : 1], 4, "%s, %s", one, other);
      distinct += lost_a != lost_b;
    }
  cr_assert_geq(distinct, 4);
}

Test(arena, idle_gpus_go_where_each_of_them_gains_most) {
  for (const bool swapped : {false, true}) {
    RivalView on(support::h100_nodes(1));
    const auto small = on.training(named("gpt2-350m"), {1, 2, 1, 16}),
               large = on.training(named("gpt2-1.3b"), {1, 2, 1, 16});
    on.run(1, swapped ? *large : *small, {1, 2, 1, 16}, 8);
    on.run(2, swapped ? *small : *large, {1, 2, 1, 16}, 8);
    Arena::Options options;
    options.depth = 1;
    auto has = support::carry_out(on, Arena(options).decide(on.view));
    const auto gain = [&](const std::shared_ptr<Training>& of) {
      return speed_at(on, of, 0, 4) - speed_at(on, of, 0, 2);
    };
    cr_assert_gt(gain(small), gain(large));
    cr_assert_eq(has[swapped ? 2 : 1], 4, "samples a second of the small model count as many");
    cr_assert_eq(has[swapped ? 1 : 2], 2, "one change, at a depth of 1");
  }
}

Test(arena, fairness_lets_the_job_grow_that_is_furthest_below_its_share) {
  RivalView on(support::h100_nodes(1));
  const auto small = on.training(named("gpt2-350m"), {1, 2, 1, 16}),
             large = on.training(named("gpt2-1.3b"), {1, 1, 1, 16});
  on.run(1, *small, {1, 2, 1, 16}, 8);
  on.run(2, *large, {1, 1, 1, 16}, 8);
  Arena::Options options;
  options.depth = 1;
  auto plain = support::carry_out(on, Arena(options).decide(on.view));
  cr_assert_eq(plain[1], 4);
  options.objective = Objective::fairness;
  auto fair = support::carry_out(on, Arena(options).decide(on.view));
  cr_assert_eq(fair[1], 2);
  cr_assert_gt(fair[2], 1);
}

Test(arena, a_job_is_not_scaled_down_below_what_keeps_its_deadline) {
  RivalView on(support::h100_nodes(1));
  const auto small = on.training(named("gpt2-1.3b"), {1, 4, 1, 16}),
             fast = on.training(named("gpt2-350m"), {1, 4, 1, 16});
  ElasticJobView& owed = on.run(1, *small, {1, 4, 1, 16}, 8);
  owed.deadline_s = on.view.now_s + 1000;
  owed.remaining_samples = 900 * speed_at(on, small, 0, 4);  // 4 GPUs do, 2 do not
  on.run(2, *fast, {1, 4, 1, 16}, 8);
  pend_rigid(on, 3, 2, kYoung_s);
  Arena::Options options = quiet();
  options.depth = 1;
  auto plain = support::carry_out(on, Arena(options).decide(on.view));
  cr_assert_eq(plain[1], 2, "fewer samples a second are lost by this one");
  options.objective = Objective::deadlines;
  auto kept = support::carry_out(on, Arena(options).decide(on.view));
  cr_assert_eq(kept[1], 4);
  cr_assert_eq(kept[2], 2);
  cr_assert_eq(kept[3], 2);
}

Test(arena, a_job_with_a_deadline_starts_with_what_keeps_it) {
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-1.3b"), {1, 2, 1, 16});
  PendingDemand& demand = on.pend(1, training, 8);
  demand.deadline_s = on.view.now_s + 1000;
  demand.remaining_samples = 1000 * 1.2 * speed_at(on, training, 0, 2);
  Arena::Options options = quiet();
  cr_assert_eq(support::carry_out(on, Arena(options).decide(on.view))[1], 2);
  options.objective = Objective::deadlines;
  cr_assert_eq(support::carry_out(on, Arena(options).decide(on.view))[1], 4);
  demand.remaining_samples *= 1e6;  // no size keeps it: as without a deadline
  cr_assert_eq(support::carry_out(on, Arena(options).decide(on.view))[1], 2);
}

Test(arena, types_and_numbers_change_unless_they_are_switched_off) {
  // The user wants 4 of the first type, of which 2 are idle.
  RivalView on(cluster::preset("1x8-h100+1x8-a100-80g").value());
  const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  for (int g = 0; g < 6; ++g) on.view.nodes[0].free_gpus &= ~(plan::GpuMask{1} << g);
  on.view.nodes[0].free.gpus = 2;
  on.pend(1, training, 16, kYoung_s);
  const auto with = [&](double hetero, double elastic) {
    Arena::Options options = quiet();
    options.heterogeneous = hetero;
    options.elastic = elastic;
    return by_type(on, Arena(options).decide(on.view))[1];
  };
  cr_assert(with(0, 0).empty());
  cr_assert(with(0, 1) == (std::map<int, int>{{0, 2}}));
  cr_assert(with(1, 0) == (std::map<int, int>{{1, 4}}));
  const double fewer = speed_at(on, training, 0, 2), other = speed_at(on, training, 1, 4);
  cr_assert(with(1, 1) ==
            (other > fewer ? std::map<int, int>{{1, 4}} : std::map<int, int>{{0, 2}}));
}

Test(arena, without_the_planner_it_decides_by_data_parallelism) {
  // 13 billion parameters fit no single GPU: the user's own degrees are what is known.
  RivalView on(support::h100_nodes(2));
  Arena::Options options = quiet();
  options.planner = 0;
  on.pend(1, on.training(named("llama2-13b"), {1, 1, 4, 64}), 16);
  on.pend(2, on.training(named("gpt2-1.3b"), {1, 4, 1, 16}), 16);
  auto has = support::carry_out(on, Arena(options).decide(on.view));
  cr_assert_eq(has[1], 4);
  cr_assert_eq(has[2], 4);
  const std::vector<Contender> jobs = contenders(on.view);
  CurveCache curves;
  const ArenaJobs dp(on.view, jobs, {Objective::throughput, false, 0}, curves);
  for (const ArenaShare& row : dp.all()[1].rows(0))
    cr_assert_eq(row.degrees.gpus(), row.degrees.dp);
  const ArenaJobs all(on.view, jobs, {Objective::throughput, true, 0}, curves);
  for (const ArenaShare& row : dp.all()[1].rows(0))
    for (const ArenaShare& best : all.all()[1].rows(0))
      if (best.gpus == row.gpus) cr_assert_geq(best.throughput, row.throughput);
}

Test(arena, without_pruning_a_change_waits_for_a_search) {
  RivalView on(support::h100_nodes(1));
  on.pend(1, on.training(named("gpt2-350m"), {1, 2, 1, 16}), 2);
  Arena::Options options = quiet();
  cr_assert_eq(Arena(options).simulate(on.view).search_s, 0);
  options.pruning = 0;
  cr_assert_eq(Arena(options).simulate(on.view).search_s, 300, "150 s a GPU");
}

Test(arena, a_job_on_too_many_nodes_is_gathered_when_a_period_is_over) {
  RivalView on(support::h100_nodes(2, 8, 1e9));  // a slow network
  const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  on.run(1, *training, {1, 4, 1, 16}, 4, {{0, 0, 0b11}, {1, 0, 0b11}});
  on.view.jobs.back().max_gpus = 8;  // elastic
  Arena::Options options;
  options.elastic = options.heterogeneous = 0;
  on.view.now_s = 3600 * 4 + 10;  // the step before was in the period before
  const Decisions moved = Arena(options).decide(on.view);
  support::carry_out(on, moved);
  cr_assert_eq(moved.plans.size(), 1u);
  std::set<int> nodes;
  for (const auto& stage : moved.plans[0].layout.stages)
    for (const auto& group : stage.groups) nodes.insert(group.node);
  cr_assert_eq(nodes.size(), 1u);
  on.view.now_s = 3600 * 4 + 1800;
  cr_assert(Arena(options).decide(on.view).plans.empty(), "in the middle of a period");
  on.view.now_s = 3600 * 4 + 10;
  options.migration_s = 0;
  cr_assert(Arena(options).decide(on.view).plans.empty(), "switched off");
}

Test(arena, launched_jobs_run_on_and_each_is_on_one_type_and_a_size_that_it_may_have) {
  constexpr const char* kModels[] = {"gpt2-350m", "gpt2-1.3b", "bert-large"};
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    RivalView on(cluster::preset("2x8-h100+2x4-a100-80g").value());
    std::vector<std::shared_ptr<Training>> known;
    for (const char* model : kModels) known.push_back(on.training(named(model), {1, 2, 1, 16}));
    JobId id = 1;
    for (int node = 0; node < 4; ++node)
      for (int part = 0; part < (node < 2 ? 4 : 2); ++part)
        if (below(2) == 0)
          on.run(id++, *known[static_cast<std::size_t>(below(3))], {1, 2, 1, 16}, 24,
                 {{node, node < 2 ? 0 : 1, plan::GpuMask{3} << (2 * part)}})
              .may_grow = below(4) > 0;
    for (int i = below(8); i > 0; --i)
      on.pend(id++, known[static_cast<std::size_t>(below(3))], 24, kYoung_s - below(20000));
    Arena::Options options;
    options.objective = static_cast<Objective>(seed % 4);
    options.migration_s = 1;
    const auto has = by_type(on, Arena(options).decide(on.view));
    for (const ElasticJobView& job : on.view.jobs) cr_assert(has.contains(job.id), "seed %u", seed);
    for (const auto& [job, types] : has) {
      cr_assert_eq(types.size(), 1u, "seed %u: job %u is on two types", seed, job);
      cr_assert(std::has_single_bit(static_cast<unsigned>(types.begin()->second)));
    }
  }
}

Test(arena, a_parameter_out_of_range_is_named_with_what_may_be_given) {
  cr_assert_eq(why({{"queues", 5}, {"depth", 1}, {"objective", 3}}), "");
  cr_assert_eq(why({{"queues", 0}}), "queues of 0 is out of range; give 1 to 100");
  cr_assert_eq(why({{"depth", 0}}), "depth of 0 is out of range; give 1 to 100");
  cr_assert_eq(why({{"depth", 2.5}}), "depth of 2.5 is not a whole number; give one from 1 to 100");
  cr_assert_eq(why({{"promotion", 0}}), "promotion of 0 is out of range; give 1 to 1000000");
  cr_assert_eq(why({{"min-gain", -0.1}}), "min-gain of -0.1 is out of range; give 0 to 10");
  cr_assert_eq(why({{"hetero", 2}}), "hetero of 2 is out of range; give 0 to 1");
  cr_assert(why({{"pairs", 2}}).starts_with("there is no parameter \"pairs\"; there are: "));
}
