// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/belief.h"

#include <criterion/criterion.h>

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

Test(belief, what_was_not_measured_is_as_predicted) {
  const ClusterView view = measured(0, 0);
  const Belief belief(view, tables());
  const ElasticJobView& job = view.jobs[0];
  const Training& training = *job.training;
  cr_assert_float_eq(belief.now(job),
                     tables().throughput(training, training.current, *view.machines), 1e-9);
  cr_assert_float_eq(belief.basic(job),
                     tables().throughput(training, training.basic, *view.machines), 1e-9);
  cr_assert_float_eq(belief.of_best(job, 50), 50, 1e-9);
  cr_assert_not(belief.too_far_off());
}

Test(belief, what_was_measured_counts_in_place_of_what_was_predicted) {
  const ClusterView view = measured(1, 0.6);
  const Belief belief(view, tables());
  const ElasticJobView& job = view.jobs[0];
  cr_assert_float_eq(belief.now(job), job.training->measured_throughput, 1e-6);
  cr_assert_float_eq(belief.basic(job), job.training->measured_basic, 1e-6);
}

Test(belief, an_error_that_all_plans_share_is_no_reason_for_caution) {
  const ClusterView view = measured(0.7, 0.7);
  const Belief belief(view, tables());
  cr_assert_lt(belief.error(), 0.07, "%g", belief.error());
  const double expected = belief.of_best(view.jobs[0], 100);
  cr_assert(expected > 69 && expected < 80, "%g", expected);
}

Test(belief, where_lent_gpus_bring_less_than_predicted_less_is_expected_of_further_ones) {
  const ClusterView near = measured(1, 0.97), far = measured(1, 0.6);
  const Belief good(near, tables()), poor(far, tables());
  cr_assert_gt(good.of_best(near.jobs[0], 100), 95);
  cr_assert_lt(poor.of_best(far.jobs[0], 100), 80);
}

Test(belief, predictions_that_are_far_off_for_several_jobs_are_not_searched) {
  const ClusterView one = measured(1, 0.85), some = measured(1, 0.6, 3),
                    good = measured(1, 0.95, 3);
  cr_assert_not(Belief(one, tables()).too_far_off());
  cr_assert(Belief(some, tables()).too_far_off());
  cr_assert_not(Belief(good, tables()).too_far_off());
}
