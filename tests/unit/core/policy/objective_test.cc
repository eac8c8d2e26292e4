// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/objective.h"

#include <criterion/criterion.h>

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

// The first job has eight GPUs and wants two more; the second one is small, so that fairness alone
// would lend to it.
Test(objective, what_is_owed_comes_before_each) {
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
