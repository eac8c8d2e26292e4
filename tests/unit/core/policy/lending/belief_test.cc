// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/belief.h"

#include <criterion/criterion.h>
#include <numeric>
#include <vector>

#include "core/planner/symmetric.h"
#include "support/views.h"

using namespace swell::policy;
using namespace support;

namespace {

const ScaleTables& tables() {
  static const ScaleTables made(std::make_unique<swell::planner::Symmetric>());
  return made;
}

/// A job of 4 GPUs that is lent 4 on another node; what is predicted for both plans, times the
/// factors, was measured.
ClusterView measured(double basic, double now, int jobs = 1) {
  ClusterView view = idle_cluster(2 * jobs);
  know_machines(view);
  view.jobs.reserve(static_cast<std::size_t>(jobs));
  for (int i = 0; i < jobs; ++i) {
    ElasticJobView& job = add_job(view, static_cast<JobId>(i + 1), 2 * i, 4);
    lend(view, job, static_cast<JobId>(100 + i), 2 * i + 1, 4);
    const auto training = profile(job, small_model(), light_coefficients());
    training->measured_basic =
        basic * tables().throughput(*training, training->basic, *view.machines);
    training->measured_throughput =
        now * tables().throughput(*training, training->current, *view.machines);
  }
  return view;
}

}  // namespace

Test(belief, unmeasured_sizes_are_as_predicted) {
  const ClusterView view = measured(0, 0);
  const Belief belief(view, tables());
  const ElasticJobView& job = view.jobs[0];
  const Training& training = *job.training;
  cr_assert_float_eq(belief.now(job),
                     tables().throughput(training, training.current, *view.machines), 1e-9);
  cr_assert_float_eq(belief.basic(job),
                     tables().throughput(training, training.basic, *view.machines), 1e-9);
  cr_assert_float_eq(belief.of_best(job, 50), 50, 1e-9);
  cr_assert_not(belief.too_far_off(job));
}

Test(belief, measurements_replace_predictions) {
  const ClusterView view = measured(1, 0.6);
  const Belief belief(view, tables());
  const ElasticJobView& job = view.jobs[0];
  cr_assert_float_eq(belief.now(job), job.training->measured_throughput, 1e-6);
  cr_assert_float_eq(belief.basic(job), job.training->measured_basic, 1e-6);
}

Test(belief, an_error_that_all_plans_share_is_no_reason_for_caution) {
  const ClusterView view = measured(0.7, 0.7);
  const Belief belief(view, tables());
  cr_assert_lt(belief.error(view.jobs[0]), 0.07, "%g", belief.error(view.jobs[0]));
  const double expected = belief.of_best(view.jobs[0], 100);
  cr_assert(expected > 69 && expected < 80, "%g", expected);
}

Test(belief, where_lent_gpus_bring_less_than_predicted_less_is_expected_of_further_ones) {
  const ClusterView near = measured(1, 0.97), far = measured(1, 0.6);
  const Belief good(near, tables()), poor(far, tables());
  cr_assert_gt(good.of_best(near.jobs[0], 100), 95);
  cr_assert_lt(poor.of_best(far.jobs[0], 100), 80);
}

Test(belief, a_job_whose_predictions_are_far_off_is_not_searched) {
  const ClusterView near = measured(1, 0.85), far = measured(1, 0.6);
  cr_assert_not(Belief(near, tables()).too_far_off(near.jobs[0]));
  cr_assert(Belief(far, tables()).too_far_off(far.jobs[0]));
}

namespace {

/// Job 1 of owner 0, whose basic plan is as predicted, beside one job for each of `owners`, whose
/// measurements are `off` times what is predicted.
ClusterView beside(const std::vector<std::int64_t>& owners, double off) {
  ClusterView view = idle_cluster(static_cast<int>(owners.size()) + 1);
  know_machines(view);
  view.jobs.reserve(owners.size() + 1);
  const auto add = [&](std::int64_t owner, double factor) {
    const auto id = static_cast<JobId>(view.jobs.size() + 1);
    ElasticJobView& job = add_job(view, id, static_cast<NodeIndex>(id - 1), 4);
    job.owner = owner;
    const auto training = profile(job, small_model(), light_coefficients());
    training->measured_throughput =
        factor * tables().throughput(*training, training->basic, *view.machines);
  };
  add(0, 1);
  for (const std::int64_t owner : owners) add(owner, off);
  return view;
}

struct Seen {
  double of_best, error;
  bool too_far_off;
  bool operator==(const Seen&) const = default;
};
Seen of_honest(const std::vector<std::int64_t>& owners, double off) {
  const ClusterView view = beside(owners, off);
  const Belief belief(view, tables());
  const ElasticJobView& job = view.jobs[0];
  return {belief.of_best(job, 100), belief.error(job), belief.too_far_off(job)};
}

}  // namespace

Test(belief, jobs_of_one_or_two_owners_change_nothing_for_another_owner) {
  const Seen alone = of_honest({}, 1);
  for (const double off : {0.55, 1.45, 0.2, 5.0}) {
    cr_assert(of_honest({1}, off) == alone, "%g", off);
    cr_assert(of_honest({1, 2}, off) == alone, "%g", off);
    for (const std::size_t jobs : {5u, 50u}) {
      cr_assert(of_honest(std::vector<std::int64_t>(jobs, 1), off) == alone, "%zu", jobs);
      // A single further owner among them makes no majority of owners either.
      std::vector<std::int64_t> owners(jobs, 1);
      owners.back() = 2;
      cr_assert(of_honest(owners, off) == alone, "%zu", jobs);
    }
  }
}

Test(belief, a_minority_of_owners_changes_nothing_and_a_majority_little) {
  const Seen alone = of_honest({}, 1);
  ClusterView view = beside({1, 2, 3, 4, 5}, 1);
  for (const std::size_t liar : {1u, 2u}) {
    auto training = std::make_shared<Training>(*view.jobs[liar].training);
    training->measured_throughput *= 1.8;
    view.jobs[liar].training = training;
  }
  const Belief some(view, tables());
  cr_assert_eq(some.of_best(view.jobs[0], 100), alone.of_best);
  cr_assert_eq(some.lowered_by_others(view.jobs[0]), 1);

  std::vector<std::int64_t> owners(50);
  std::iota(owners.begin(), owners.end(), 1);
  const ClusterView all = beside(owners, 0.2);
  const Belief most(all, tables());
  const ElasticJobView& honest = all.jobs[0];
  cr_assert_not(most.too_far_off(honest));
  cr_assert(most.lowered_by_others(honest) < 1 && most.lowered_by_others(honest) > 0.95, "%g",
            most.lowered_by_others(honest));
  cr_assert_leq(most.error(honest), Belief::kMaxOfOthers);
}

Test(belief, a_job_whose_predictions_are_off_pays_for_that_itself) {
  const ClusterView view = beside({1}, 0.2);
  const Belief belief(view, tables());
  cr_assert(belief.too_far_off(view.jobs[1]));
  cr_assert_eq(belief.lowered_by_others(view.jobs[1]), 1);
  cr_assert_lt(belief.of_best(view.jobs[1], 100), 80);
}
