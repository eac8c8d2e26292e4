// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/objective.h"

#include <algorithm>
#include <cmath>
#include <criterion/criterion.h>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/planner/incremental.h"
#include "core/planner/micro_batches.h"
#include "core/policy/lending/swell_views.h"

using namespace swell_views;

namespace {

Decisions decide_for(Objective objective, const ClusterView& view) {
  Swell::Options options;
  options.objective = objective;
  return Swell(options).decide(view);
}

constexpr Objective kAll[] = {Objective::completion, Objective::throughput, Objective::deadlines,
                              Objective::fairness};

}  // namespace

Test(objective, each_has_a_name_and_other_words_have_none) {
  for (const Objective one : kAll)
    cr_assert(objective_named(kObjectiveNames[static_cast<std::size_t>(one)]) == one);
  cr_assert_not(objective_named("").has_value());
  cr_assert_not(objective_named("Fairness").has_value());
}

// The second job is young, which counts many times as much for completion, but gains less.
Test(objective, only_completion_looks_at_the_age_of_jobs) {
  ClusterView view = two_alike(0, 9990);
  profile_poor(view.jobs[1]);
  for (const Objective one : kAll) {
    const Decisions decisions = decide_for(one, view);
    const JobId lent = one == Objective::completion ? 2 : 1;
    cr_assert_eq(granted(decisions, lent), 2, "%d", static_cast<int>(one));
    cr_assert_eq(granted(decisions, 3 - lent), 0, "%d", static_cast<int>(one));
  }
}

Test(objective, deadlines_are_kept_first_by_two_of_them) {
  for (const Objective one : kAll) {
    const bool keeps = one == Objective::completion || one == Objective::deadlines;
    ClusterView view = two_alike(9990, 0);
    profile_poor(view.jobs[1]);
    cr_assert_eq(granted(decide_for(one, view), 2), 0, "it is old, and gains less");
    // In an hour at one and a third of its speed.
    view.jobs[1].deadline_s = view.now_s + 1e6;
    view.jobs[1].remaining_samples = 1e6;
    const double speed = 1e6 / (1e6 - *decide(view).deadlines.at(0).slack_s);
    view.jobs[1].deadline_s = view.now_s + 3600;
    view.jobs[1].remaining_samples = 1.3 * 3600 * speed;
    const Decisions decisions = decide_for(one, view);
    cr_assert_eq(decisions.deadlines.size(), keeps ? 1u : 0u);
    cr_assert_eq(granted(decisions, 2), keeps ? 2 : 0, "%d", static_cast<int>(one));
  }
}

// The first job is young and has seven of the eight GPUs; the second one is old and has its own.
Test(objective, fairness_moves_gpus_to_the_job_that_is_furthest_below_its_share) {
  ClusterView view = one_has_all(9990, 0);
  cr_assert(decide_for(Objective::completion, view).reclaims.empty());
  cr_assert(!decide_for(Objective::fairness, view).reclaims.empty());
  // With five and three nobody is far above the other.
  view.jobs[1].companions.push_back(view.jobs[0].companions.back());
  view.jobs[0].companions.pop_back();
  for (ElasticJobView& job : view.jobs) profile(job, small_model(), light_coefficients());
  cr_assert(decide_for(Objective::fairness, view).reclaims.empty());
}

namespace {

/// Two or three jobs on one node, whose other GPUs are idle.
struct SmallWorld {
  ClusterView view = idle_cluster(1);
  std::vector<perf::Coefficients> coefficients;

  explicit SmallWorld(unsigned seed) {
    std::mt19937 random(seed);
    const auto any = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    know_machines(view);
    view.now_s = 1e7;
    const int jobs = any(2, 3);
    view.jobs.reserve(static_cast<std::size_t>(jobs));
    for (JobId id = 1; id <= static_cast<JobId>(jobs); ++id) {
      const int idle = view.nodes[0].free.gpus;
      ElasticJobView& job =
          add_job(view, id, 0, std::min(any(1, 4), idle - 3 + static_cast<int>(id)));
      job.max_gpus = any(job.basic_gpus, 8);
      perf::Coefficients k = light_coefficients();
      k.types[0].comp_s *= any(1, 5);
      k.param_bytes = std::pow(10.0, any(6, 10));
      coefficients.push_back(k);
      profile(job, small_model(), k);
    }
  }

  /// Speed on `gpus` GPUs over that on one.
  double level(std::size_t at, int gpus) const {
    const ElasticJobView& job = view.jobs[at];
    const perf::PerformanceModel perf(*job.training->model, *view.machines, coefficients[at]);
    planner::Problem problem{perf, job.training->basic, {}};
    for (int gpu = 0; gpu < 8 && static_cast<int>(problem.free.size()) < gpus - job.basic_gpus;
         ++gpu)
      if ((job.basic_gpu_masks[0] >> gpu & 1) == 0) problem.free.push_back({0, gpu});
    planner::Incremental::Options options;
    options.max_free = 8;
    const auto table = planner::FewerMicroBatches(std::make_unique<planner::Incremental>(options))
                           .solve(problem, {});
    return table.rows.back().throughput /
           (table.rows.front().throughput / std::pow(job.basic_gpus, 0.9));
  }

  /// The levels with `more` GPUs for each job, the worst first.
  std::vector<double> levels(const std::vector<int>& more) const {
    std::vector<double> all;
    for (std::size_t at = 0; at < more.size(); ++at)
      all.push_back(level(at, view.jobs[at].basic_gpus + more[at]));
    std::sort(all.begin(), all.end());
    return all;
  }

  /// The best worst level of all ways to lend.
  double best_worst() const {
    double best = 0;
    std::vector<int> more(view.jobs.size(), 0);
    const int idle = view.nodes[0].free.gpus;
    for (;;) {
      if (std::accumulate(more.begin(), more.end(), 0) <= idle)
        best = std::max(best, levels(more).front());
      std::size_t at = 0;
      while (at < more.size() && ++more[at] + view.jobs[at].basic_gpus > view.jobs[at].max_gpus)
        more[at++] = 0;
      if (at == more.size()) return best;
    }
  }
};

}  // namespace

// The largest gain by a GPU, at an aversion of 3, misses it in worlds 58 and 120, and throughput,
// which looks at sums alone, in more.
Test(objective, fairness_lends_for_the_best_worst_ratio_of_all) {
  int others_miss = 0;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    const SmallWorld world(seed);
    const auto worst_for = [&](Objective objective) {
      const Decisions decisions = decide_for(objective, world.view);
      std::vector<int> more;
      for (const ElasticJobView& job : world.view.jobs) more.push_back(granted(decisions, job.id));
      return world.levels(more).front();
    };
    const double best = world.best_worst();
    const double fair = worst_for(Objective::fairness);
    cr_assert_gt(fair, 0.999 * best, "world %u: %g of %g", seed, fair, best);
    others_miss += worst_for(Objective::throughput) < 0.98 * best ? 1 : 0;
  }
  cr_assert_gt(others_miss, 0);
}

// The first job has eight GPUs and wants two more; the second one is small, so that fairness alone
// would lend to it.
Test(objective, owed_gpus_come_before_each_objective) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.now_s = 10000;
  view.jobs.reserve(2);
  ElasticJobView& large = add_job(view, 1, 0, 8);
  ElasticJobView& small = add_job(view, 2, 1, 1);
  large.wanted_gpus = 10;
  large.max_gpus = 16;
  small.max_gpus = 8;
  lend(view, small, 21, 1, 1);
  lend(view, small, 22, 1, 1);
  take(view, 1, {5, 40, 40000});
  profile(large, small_model(), light_coefficients());
  profile(small, small_model(), light_coefficients());
  for (const Objective one : kAll) {
    const Decisions decisions = decide_for(one, view);
    cr_assert_eq(decisions.reclaims.size(), 2u, "%d", static_cast<int>(one));
    for (const Reclaim& reclaim : decisions.reclaims) cr_assert_eq(reclaim.why, Reclaim::Why::owed);
  }
}
