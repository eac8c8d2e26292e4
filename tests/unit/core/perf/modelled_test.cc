// SPDX-License-Identifier: GPL-2.0-or-later
// FlexTrain's modelling-based prediction, worked by hand from its equations.
#include "core/perf/modelled.h"

#include <cmath>
#include <criterion/criterion.h>

#include "core/perf/performance_model.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::perf;
using support::near;

namespace {

bool is(const ModelledTime& time, double ideal, double bubble, double extra) {
  return near(time.ideal, ideal) && near(time.bubble, bubble) && near(time.extra_bubble, extra);
}

}  // namespace

Test(modelled, pipelines_by_hand) {
  // p 2, m 4, v 3 chunks of 1 s: 12 s of work, and one chunk to fill the pipeline.
  cr_assert(is(modelled_pipeline(4, 2, 3, 3), 12, 1, 0));
  // p 4, m 2: two stages more than micro-batches wait in each of two further rounds.
  cr_assert(is(modelled_pipeline(2, 4, 3, 3), 6, 3, 4));
  // One chunk: eq. 2, and no round that could wait.
  cr_assert(is(modelled_pipeline(2, 4, 1, 3), 6, 9, 0));
  cr_assert(is(modelled_pipeline(5, 1, 7, 7), 35, 0, 0));
}

Test(modelled, equation_5_is_the_sum_of_equations_1_3_and_4) {
  for (int p = 1; p <= 12; ++p)
    for (int v = 1; v <= 6; ++v)
      for (int m = 1; m <= 30; ++m) {
        const double wanted = m >= p ? m * v + p - 1 : p * v + m - 1;
        cr_assert(near(modelled_pipeline(m, p, v, v).total(), wanted), "%d, %d, %d", p, v, m);
      }
}

// 8 layers, 64 samples; both passes of a layer take 3 ms a sample on one GPU.
Test(modelled, combinations_by_hand) {
  const auto model = support::small_model(8, 64);
  const auto k = support::round_coefficients();
  const ModelledPredictor predictor(model, k);
  cr_assert_eq(predictor.divisions(), 8);
  cr_assert(near(predictor.division_s(0, 2, 4), 6e-3));
  const auto total = [&](const Combination& degrees) { return predictor.time(degrees, 0).total(); };
  cr_assert(near(total({1, 1, 1, 4}), 64 * 8 * 3e-3), "one GPU does all the work");
  // m 8, 4 samples on two GPUs: 6 ms; two layers on each of 4 stages.
  cr_assert(near(total({4, 2, 2, 8}), (8 * 2 + 4 - 1) * 6e-3));
  cr_assert(near(total({4, 2, 2, 8, 1}), (8 + 4 - 1) * 12e-3), "one chunk of two layers");
  cr_assert(near(total({4, 2, 2, 8, 9}), (8 * 2 + 4 - 1) * 6e-3), "at most a chunk a layer");
  cr_assert(near(total({3, 2, 2, 8}), (8 * 3 + 3 - 1) * 6e-3), "v is rounded up");
  cr_assert(near(total({4, 1, 1, 2}), (4 * 2 + 2 - 1) * 96e-3), "fewer micro-batches than stages");
  // Eq. 6, micro-batches of one sample: 64 / 4 of them.
  cr_assert(near(total({2, 4, 1, 16}), (16 * 4 + 2 - 1) * 3e-3));
}

Test(modelled, launches_and_what_tp_does_not_divide_count) {
  const auto model = support::small_model(8, 64);
  auto k = support::round_coefficients();
  k.types[0].whole_s = 1e-3;
  k.types[0].launch_s = 8e-3;
  // 4 samples on two GPUs: 2 + 4 ms forward, 12 ms backward; launches 8 and 16 ms.
  cr_assert(near(ModelledPredictor(model, k).division_s(0, 2, 4), 10e-3 + 20e-3));
}

Test(modelled, heads_and_mtp_modules_are_divisions_by_their_work) {
  auto model = support::small_model(8, 64);
  auto k = support::round_coefficients();
  k.head_layers = 0.3;
  const ModelledPredictor small(model, k);
  cr_assert_eq(small.divisions(), 8, "a small head is not a division of its own");
  cr_assert(near(small.time({1, 1, 1, 1}, 0).total(), 64 * 8.3 * 3e-3), "but it takes its time");
  k.head_layers = 1.2;
  cr_assert_eq(ModelledPredictor(model, k).divisions(), 9);
  model.mtp_heads = 2;
  const double work = 8 + 2 * models::Chain(model).module_work() + 3 * 1.2;
  const ModelledPredictor with_heads(model, k);
  cr_assert_eq(with_heads.divisions(), static_cast<int>(std::lround(work)));
  cr_assert_geq(with_heads.divisions(), 13);
  cr_assert(near(with_heads.time({1, 1, 1, 1}, 0).total(), 64 * work * 3e-3));
}

Test(modelled, plans_with_like_stages_are_combinations) {
  const auto model = support::small_model(9, 64);
  const auto k = support::round_coefficients();
  const ModelledPredictor predictor(model, k);
  for (const int pp : {1, 2, 3, 4, 9}) {
    plan::Layout layout{8, {}};
    for (int i = 0; i < pp; ++i) support::add_stage(layout, 1, 2, 2, 4, i);
    cr_assert(near(predictor.time(layout).total(), predictor.time({pp, 2, 2, 8, 1}, 0).total()),
              "%d", pp);
    cr_assert(near(predictor.throughput(layout), 64 / predictor.time(layout).total()));
  }
}

Test(modelled, stages_of_unlike_speed_have_unlike_shares) {
  const auto model = support::small_model(9, 64);
  const auto k = support::round_coefficients(2);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 5, 1, 2, 4, 0, 0, 0);
  support::add_stage(layout, 4, 1, 2, 4, 1, 0, 1);
  // 12 ms and 24 ms a layer: 6 and 3 of them, 72 ms each.
  cr_assert(near(ModelledPredictor(model, k).time(layout).total(), (8 + 2 - 1) * 72e-3));
  // 10 layers: 7 and 3, since 6 and 4 would take 96 ms.
  const auto more = support::small_model(10, 64);
  cr_assert(near(ModelledPredictor(more, k).time(layout).total(), (8 + 2 - 1) * 84e-3));
}

Test(modelled, a_fast_stage_may_have_all_that_is_left) {
  const auto model = support::small_model(10, 64);
  auto k = support::round_coefficients(2);
  k.types[1].comp_s = 10e-3;
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 1, 2, 4, 0, 0, 0);
  support::add_stage(layout, 1, 1, 2, 4, 1, 0, 1);
  support::add_stage(layout, 1, 1, 2, 4, 1, 2, 1);
  // 12 ms a layer on the first stage, 120 ms on the others: ten on the first, 120 ms.
  cr_assert(near(ModelledPredictor(model, k).time(layout).total(), (8 + 3 - 1) * 120e-3));
}

Test(modelled, injected_errors_are_not_those_of_the_performance_model) {
  const auto model = support::small_model(8, 64);
  const auto cluster = support::h100_nodes(2);
  const auto exact = support::round_coefficients();
  auto wrong = exact;
  wrong.plan_error = 0.2;
  double both = 0, ours = 0, theirs = 0;
  constexpr int kSeeds = 400;
  plan::Layout layout{8, {}};
  support::add_stage(layout, 4, 1, 2, 4, 0);
  support::add_stage(layout, 4, 1, 2, 4, 1);
  for (int seed = 0; seed < kSeeds; ++seed) {
    wrong.plan_error_seed = static_cast<std::uint64_t>(seed);
    const double modelled = ModelledPredictor(model, wrong).throughput(layout) /
                            ModelledPredictor(model, exact).throughput(layout);
    const double profiled = PerformanceModel(model, cluster, wrong).throughput(layout) /
                            PerformanceModel(model, cluster, exact).throughput(layout);
    const double one = 1 / modelled - 1, other = 1 / profiled - 1;
    ours += one * one;
    theirs += other * other;
    both += one * other;
  }
  cr_assert(near(std::sqrt(ours / kSeeds), 0.2, 0.15), "%g", std::sqrt(ours / kSeeds));
  cr_assert_lt(std::fabs(both) / std::sqrt(ours * theirs), 0.15);
}
