// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/measured_speeds.h"

#include <cmath>
#include <criterion/criterion.h>

#include "core/perf/performance_model.h"
#include "support/plans.h"
#include "support/views.h"

using namespace swell;
using namespace swell::policy;
using namespace support;

namespace {

/// One stage of `gpus` GPUs on `node`, with `last` of 16 samples on the last GPU.
plan::Layout data_parallel(int gpus, int node = 0, int last = 0) {
  plan::Layout layout{4, {}};
  add_stage(layout, 4, 1, gpus, 16 / gpus, node, 0);
  if (last > 0) layout.stages[0].groups.back().local_batch = last;
  return layout;
}

struct World {
  ClusterView view = idle_cluster(2);
  models::Model model = small_model(4, 64);
  std::shared_ptr<const perf::Coefficients> coefficients;
  World() {
    know_machines(view);
    ElasticJobView& job = add_job(view, 1, 0, 4);
    coefficients = profile(job, model, light_coefficients())->coefficients;
  }
  double throughput(const perf::Coefficients& by, const plan::Layout& layout) const {
    return perf::PerformanceModel(model, *view.machines, by, perf::Sends::counted)
        .throughput(layout);
  }
  double predicted(const plan::Layout& layout) const { return throughput(*coefficients, layout); }
  /// Returns the expected over the predicted speed of `layout`, once plans of 2 and 4 GPUs were
  /// measured at these factors of their predicted speeds.
  double expected(const plan::Layout& layout, double two, double four) const {
    const auto made = corrected(coefficients, model, *view.machines,
                                {{data_parallel(2), two * predicted(data_parallel(2))},
                                 {data_parallel(4), four * predicted(data_parallel(4))}});
    return throughput(*made, layout) / predicted(layout);
  }
};

}  // namespace

Test(measured_speeds, a_measured_plan_has_its_measured_speed_on_any_node) {
  const World world;
  cr_assert_float_eq(world.expected(data_parallel(4), 1, 0.6), 0.6, 0.006);
  cr_assert_float_eq(world.expected(data_parallel(4, 1), 1, 0.6), 0.6, 0.006);
  cr_assert_float_eq(world.expected(data_parallel(2), 1.3, 0.6), 1.3, 0.013);
}

Test(measured_speeds, a_plan_of_another_shape_is_not_the_measured_one) {
  const World world;
  const plan::Layout uneven = data_parallel(4, 0, 5);
  cr_assert_gt(world.expected(uneven, 1, 0.6), 0.7);
  plan::Layout cut = data_parallel(4);
  cut.micro_batches = 8;
  cr_assert_neq(perf::shape_of(cut), perf::shape_of(data_parallel(4)));
  cr_assert_neq(perf::shape_of(cut, 1), perf::shape_of(cut, 2));
}

Test(measured_speeds, an_error_that_all_plans_share_is_expected_of_the_others) {
  const World world;
  const double shared = world.expected(data_parallel(8), 0.7, 0.7);
  cr_assert(shared > 0.69 && shared < 0.8, "%g", shared);
  const double apart = world.expected(data_parallel(8), 1, 1);
  cr_assert_float_eq(apart, 1, 1e-9);
}

Test(measured_speeds, where_errors_are_large_the_best_of_many_is_expected_to_be_slower) {
  cr_assert_float_eq(winners_curse(0.03), 1, 1e-12);
  cr_assert(winners_curse(0.2) < 0.96 && winners_curse(0.2) > 0.9, "%g", winners_curse(0.2));
  const World world;
  // Errors of both signs have nothing in common.
  cr_assert_lt(world.expected(data_parallel(8), 1.25, 0.8), 0.99);
}

Test(measured_speeds, nearly_equal_speeds_give_equal_coefficients) {
  const World world;
  const auto with = [&](double factor) {
    return *corrected(world.coefficients, world.model, *world.view.machines,
                      {{data_parallel(4), factor * world.predicted(data_parallel(4))}});
  };
  cr_assert(with(0.605) == with(0.61));
  cr_assert_not(with(0.605) == with(0.65));
}

Test(measured_speeds, speeds_that_say_nothing_change_nothing) {
  const World world;
  const auto made = corrected(world.coefficients, world.model, *world.view.machines,
                              {{data_parallel(2), 0}, {data_parallel(4), NAN}});
  cr_assert_eq(made.get(), world.coefficients.get());
}

Test(measured_speeds, a_job_has_few_and_the_first_and_the_last_ones) {
  std::vector<MeasuredSpeed> speeds;
  for (int i = 1; i <= 20; ++i) {
    plan::Layout layout = data_parallel(2);
    layout.micro_batches = i;
    add_speed(speeds, {layout, static_cast<double>(i)});
  }
  cr_assert_eq(speeds.size(), MeasuredSpeed::kMax);
  cr_assert_eq(speeds.front().samples_per_s, 1);
  cr_assert_eq(speeds.back().samples_per_s, 20);
  plan::Layout elsewhere = speeds[3].layout;
  elsewhere.stages[0].groups[0].node = 1;
  elsewhere.stages[0].groups[1].node = 1;
  add_speed(speeds, {elsewhere, 100});
  cr_assert_eq(speeds.size(), MeasuredSpeed::kMax);
  cr_assert_eq(speeds.back().samples_per_s, 100, "in place of that of the same shape");
}
