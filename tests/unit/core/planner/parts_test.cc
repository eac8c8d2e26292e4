// SPDX-License-Identifier: GPL-2.0-or-later
// The planner's parts: order, balance, expansion.
#include <algorithm>
#include <criterion/criterion.h>
#include <random>

#include "core/planner/affinity.h"
#include "core/planner/balance.h"
#include "core/planner/evaluator.h"
#include "core/planner/expand.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::planner;

namespace {

/// The least largest load over every split.
double brute_force(int items, const std::vector<double>& cost, const std::vector<int>& cap,
                   std::size_t bin = 0) {
  if (bin + 1 == cost.size()) return items >= 1 && items <= cap[bin] ? items * cost[bin] : 1e300;
  double best = 1e300;
  for (int here = 1; here <= std::min(cap[bin], items); ++here)
    best =
        std::min(best, std::max(here * cost[bin], brute_force(items - here, cost, cap, bin + 1)));
  return best;
}

}  // namespace

Test(affinity, nearer_gpus_come_first_then_rack_node_and_index) {
  using namespace swell::cluster;
  const auto h100 = *find_gpu_type("h100");
  const Cluster c =
      Cluster::make(
          "c", {h100},
          {{"far", 1, {0, 0}, 1e11}, {"own", 0, {0, 0, 0}, 1e11}, {"near", 0, {0, 0}, 1e11}}, {0.5})
          .value();
  plan::Layout current{1, {}};
  support::add_stage(current, 1, 1, 1, 1, 1);
  const auto order = affinity_order(current, unused(current, c), c);
  const std::vector<GpuRef> expected = {{1, 1}, {1, 2}, {2, 0}, {2, 1}, {0, 0}, {0, 1}};
  cr_assert(order == expected);
}

Test(balance, splits_as_lightly_as_any_split) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::size_t bins = 1 + random() % 4;
    const int items = static_cast<int>(bins) + static_cast<int>(random() % 12);
    std::vector<double> cost;
    std::vector<int> cap, share;
    for (std::size_t i = 0; i < bins; ++i) {
      cost.push_back(0.1 + static_cast<double>(random() % 100) / 10);
      cap.push_back(1 + static_cast<int>(random() % 12));
    }
    const double best = brute_force(items, cost, cap);
    const bool possible = min_max_split(items, cost, cap, share);
    cr_assert_eq(possible, best < 1e299);
    if (!possible) continue;
    double load = 0, sum = 0;
    int given = 0;
    for (std::size_t i = 0; i < bins; ++i) {
      cr_assert(share[i] >= 1 && share[i] <= cap[i]);
      load = std::max(load, share[i] * cost[i]);
      sum += share[i] * cost[i];
      given += share[i];
    }
    cr_assert_eq(given, items);
    cr_assert_leq(load, best * (1 + 1e-9));
    std::vector<int> lighter = share;
    lighten(cost, cap, lighter);
    double lighter_load = 0, lighter_sum = 0;
    int lighter_given = 0;
    for (std::size_t i = 0; i < bins; ++i) {
      cr_assert(lighter[i] >= 1 && lighter[i] <= cap[i]);
      lighter_load = std::max(lighter_load, lighter[i] * cost[i]);
      lighter_sum += lighter[i] * cost[i];
      lighter_given += lighter[i];
    }
    cr_assert_eq(lighter_given, items);
    cr_assert_leq(lighter_load, load * (1 + 1e-9));
    cr_assert_leq(lighter_sum, sum * (1 + 1e-9));
  }
}

Test(evaluator, gives_slow_gpus_fewer_samples_and_slow_stages_fewer_layers) {
  const auto model = support::small_model(9, 48);
  const auto cluster = support::mixed_nodes(4, 4);
  const auto k = support::round_coefficients(2);  // the second type takes twice as long
  const perf::PerformanceModel perf(model, cluster, k);
  Evaluator evaluator(perf, 6);
  plan::Layout samples{8, {{0, 1, {{0, 0, 0, 1}, {1, 1, 0, 1}}}}};
  cr_assert(evaluator.balance(samples));
  cr_assert_eq(samples.stages[0].groups[0].local_batch, 4);
  cr_assert_eq(samples.stages[0].groups[1].local_batch, 2);
  plan::Layout layers{8, {{0, 1, {{0, 0, 0, 1}}}, {0, 1, {{1, 1, 0, 1}}}}};
  cr_assert(evaluator.balance(layers));
  cr_assert_eq(layers.stages[0].layers, 6);
  cr_assert_eq(layers.stages[1].layers, 3);
}

Test(evaluator, keeps_within_memory_and_says_when_nothing_fits) {
  const auto model = support::small_model(10, 8);
  const auto cluster = support::h100_nodes(1, 4);
  auto k = support::round_coefficients();
  k.param_optim_bytes = 11e9;  // seven layers fill a GPU's 72 GiB
  const perf::PerformanceModel perf(model, cluster, k);
  Evaluator evaluator(perf, 1);
  plan::Layout one{8, {}}, two{8, {}};
  support::add_stage(one, 0, 1, 1, 0);
  cr_assert_not(evaluator.balance(one));
  support::add_stage(two, 0, 1, 1, 0);
  support::add_stage(two, 0, 1, 1, 0, 0, 1);
  cr_assert(evaluator.balance(two));
  cr_assert(evaluator.memory().fits(two));
  plan::Layout wide{8, {}};
  support::add_stage(wide, 0, 1, 4, 0);
  cr_assert_not(evaluator.balance(wide), "four groups cannot share one sample");
}

Test(expand, visits_new_stages_joined_stages_and_other_degrees) {
  plan::Layout from{8, {}};
  support::add_stage(from, 8, 2, 2, 4, 0);
  const Islands more = {{0, 0, 0b110000}};
  int pp = 0, dp = 0, tp = 0;
  expand(from, more, degrees_for(16, 8), Consistency::relaxed, [&](Candidate&& candidate) {
    const int used = candidate.layout.gpu_count() + count(candidate.idle);
    cr_assert_eq(used, 6, "every GPU is used or idle");
    if (candidate.kind == Candidate::Kind::pp) ++pp;
    if (candidate.kind == Candidate::Kind::dp) ++dp;
    if (candidate.kind == Candidate::Kind::tp) ++tp;
  });
  cr_assert_eq(pp, 4, "TP 1 and 2, in front and behind");
  cr_assert_eq(dp, 1);
  cr_assert_eq(tp, 2, "TP 1 and 4 of the six GPUs");
}

Test(expand, exact_consistency_adds_whole_stages_alone) {
  plan::Layout from{8, {}};
  support::add_stage(from, 8, 2, 2, 4, 0);
  const auto visits = [&](const Islands& more) {
    int seen = 0;
    expand(from, more, degrees_for(16, 8), Consistency::exact, [&](Candidate&& candidate) {
      for (const auto& stage : candidate.layout.stages) cr_assert(stage.tp == 2 && stage.dp() == 2);
      ++seen;
    });
    return seen;
  };
  cr_assert_eq(visits({{0, 0, 0b01110000}}), 0, "three GPUs make no stage of two groups of two");
  cr_assert_eq(visits({{0, 0, 0b11110000}}), 2);
  support::add_stage(from, 4, 2, 1, 8, 1);
  cr_assert_eq(visits({{0, 0, 0b11110000}}), 0, "stages that differ: no layer may move");
}
