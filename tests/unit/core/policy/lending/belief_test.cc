// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/belief.h"

#include <criterion/criterion.h>
#include <vector>

#include "core/planner/symmetric.h"
#include "core/policy/measured_speeds.h"
#include "support/views.h"

using namespace swell::policy;
using namespace support;

namespace {

const ScaleTables& tables() {
  static const ScaleTables made(std::make_unique<swell::planner::Symmetric>(),
                                swell::perf::Sends::counted);
  return made;
}

/// Returns a view of a job of 4 GPUs that is lent 4 on another node. Its two plans were measured at
/// these factors of their predicted speeds; 0: not measured.
ClusterView measured(double basic, double now) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  lend(view, job, 100, 1, 4);
  const auto training = profile(job, small_model(), light_coefficients());
  std::vector<MeasuredSpeed> speeds;
  const auto add = [&](const swell::plan::Layout& layout, double factor) {
    if (factor > 0)
      speeds.push_back({layout, factor * tables().throughput(*training, layout, *view.machines)});
  };
  add(training->basic, basic);
  add(training->current, now);
  training->coefficients =
      corrected(training->coefficients, *training->model, *view.machines, speeds);
  return view;
}

double predicted(const swell::plan::Layout& layout) {
  const ClusterView view = measured(0, 0);
  return tables().throughput(*view.jobs[0].training, layout, *view.machines);
}

}  // namespace

Test(belief, unmeasured_plans_are_as_predicted) {
  const ClusterView view = measured(0, 0);
  const Belief belief(view, tables());
  const ElasticJobView& job = view.jobs[0];
  cr_assert_float_eq(belief.now(job), predicted(job.training->current), 1e-9);
  cr_assert_float_eq(belief.basic(job), predicted(job.training->basic), 1e-9);
}

Test(belief, measurements_replace_predictions) {
  const ClusterView view = measured(1, 0.6);
  const Belief belief(view, tables());
  const ElasticJobView& job = view.jobs[0];
  cr_assert_float_eq(belief.now(job), 0.6 * predicted(job.training->current),
                     0.006 * predicted(job.training->current));
  cr_assert_float_eq(belief.basic(job), predicted(job.training->basic), 1e-6);
}

Test(belief, a_job_whose_predictions_are_far_off_has_few_plans_compared) {
  const ScaleTables few(std::make_unique<swell::planner::Symmetric>());
  const auto searched = [&](double now) {
    const ClusterView view = measured(1, now);
    return &Belief(view, tables(), &few).tables_of(view.jobs[0]);
  };
  cr_assert_eq(searched(0.85), &tables());
  cr_assert_eq(searched(0.6), &few);
  const ClusterView view = measured(1, 0.6);
  cr_assert_eq(&Belief(view, tables()).tables_of(view.jobs[0]), &tables(), "there are no others");
}
