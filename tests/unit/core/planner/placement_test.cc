// SPDX-License-Identifier: GPL-2.0-or-later
// Units of a model on the chunks of a plan.
#include "core/planner/placement.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <functional>

#include "core/plan/chunks.h"
#include "core/plan/validate.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::planner;
using support::near;

namespace {

models::Model model_of(int layers, int mtp_heads) {
  models::Model model = support::small_model(layers);
  model.mtp_heads = mtp_heads;
  model.global_batch = 64;
  return model;
}

plan::Layout skeleton(int stages) {
  plan::Layout layout{16, {}};
  for (int i = 0; i < stages; ++i) support::add_stage(layout, 0, 1, 1, 4, i / 8, i % 8);
  return layout;
}

perf::Coefficients coefficients_of(const models::Model& model, const cluster::Cluster& cluster) {
  perf::Coefficients made = perf::expected_coefficients(model, cluster);
  made.head_layers = 1.4;
  return made;
}

double largest_chunk(const perf::PerformanceModel& perf, const plan::Layout& layout) {
  const std::vector<models::Load> loads = plan::chunk_loads(layout, perf.chain());
  double most = 0;
  for (std::size_t at = 0; at < loads.size(); ++at) {
    const auto passes =
        perf.chunk_passes(layout.stages[at / static_cast<std::size_t>(layout.chunks())], loads[at]);
    most = std::max(most, passes.fwd + passes.bwd);
  }
  return most;
}

/// Smallest largest chunk over all ways to place the units, each chunk with at least `least`.
double best_of_all(const perf::PerformanceModel& perf, plan::Layout layout, int chunks, int least) {
  const int places = layout.pp() * chunks;
  for (plan::StageLayout& stage : layout.stages)
    stage.chunks.assign(static_cast<std::size_t>(chunks), 0);
  double best = 1e300;
  const std::function<void(int, int)> place = [&](int at, int left) {
    const auto stage = static_cast<std::size_t>(at % layout.pp());
    int& mine = layout.stages[stage].chunks[static_cast<std::size_t>(at / layout.pp())];
    if (at + 1 == places) {
      mine = left;
      if (left >= least) best = std::min(best, largest_chunk(perf, layout));
      return;
    }
    for (mine = least; mine <= left; ++mine) {
      const int own = mine;
      place(at + 1, left - own);
      mine = own;
    }
  };
  place(0, perf.chain().units());
  return best;
}

}  // namespace

Test(placement, min_max_is_the_best_of_all_partitions) {
  const auto cluster = support::h100_nodes(1, 8);
  for (const int layers : {3, 5, 6})
    for (const int heads : {0, 1, 2}) {
      const models::Model model = model_of(layers, heads);
      const perf::Coefficients coefficients = coefficients_of(model, cluster);
      const perf::PerformanceModel perf(model, cluster, coefficients);
      for (const auto& [stages, chunks] : {std::pair{2, 1}, {3, 1}, {4, 1}, {2, 2}}) {
        double least = 1e300;
        for (const Placement& one : placements(perf, skeleton(stages), chunks))
          if (one.rule == "min-max") least = std::min(least, largest_chunk(perf, one.layout));
        const double best = best_of_all(perf, skeleton(stages), chunks, 0);
        cr_assert(near(least, best, 1e-6), "%d layers, %d heads, %d stages, %d chunks: %g, %g",
                  layers, heads, stages, chunks, least, best);
      }
    }
}

Test(placement, every_placement_is_a_valid_plan_and_the_fastest_is_first) {
  const auto cluster = support::h100_nodes(1, 8);
  const models::Model model = model_of(12, 2);
  const perf::Coefficients coefficients = coefficients_of(model, cluster);
  const perf::PerformanceModel perf(model, cluster, coefficients, perf::Sends::counted);
  for (const int chunks : {1, 2, 3}) {
    const std::vector<Placement> found = placements(perf, skeleton(4), chunks);
    cr_assert_geq(found.size(), 3u);
    for (const Placement& one : found) {
      const auto valid = plan::validate(plan::name_all(one.layout, cluster), model, cluster);
      cr_assert(valid.ok(), "%s: %s", one.rule.c_str(), valid.error().message().c_str());
      cr_assert_geq(one.seconds, found.front().seconds);
      cr_assert(near(perf.iteration_time(one.layout).total(), one.seconds, 1e-12));
    }
  }
}

// Fig. 4 and 5: six layers, two heads, four stages.
Test(placement, the_papers_rule_gives_heads_the_last_and_third_last_place) {
  const auto cluster = support::h100_nodes(1, 8);
  const models::Model model = model_of(6, 2);
  const perf::Coefficients coefficients = coefficients_of(model, cluster);
  const perf::PerformanceModel perf(model, cluster, coefficients);
  for (const Placement& one : placements(perf, skeleton(4), 1)) {
    if (one.rule != "rule of FlexTrain") continue;
    const int expected[] = {4, 4, 2, 2};
    for (std::size_t i = 0; i < 4; ++i)
      cr_assert_eq(one.layout.stages[i].chunks.front(), expected[i], "stage %zu", i);
  }
}

Test(placement, plans_beyond_memory_are_left_out) {
  auto cluster = support::h100_nodes(1, 8);
  const models::Model model = model_of(12, 2);
  perf::Coefficients coefficients = coefficients_of(model, cluster);
  const auto count = [&](double state) {
    coefficients.param_optim_bytes = state;
    const perf::PerformanceModel perf(model, cluster, coefficients);
    return placements(perf, skeleton(4), 1);
  };
  const double memory = cluster.type(0).memory_bytes;
  cr_assert_geq(count(memory / 100).size(), 2u);
  cr_assert(count(memory).empty(), "a layer fills a GPU");
  // Seven layers of twelve and two modules fit nowhere; four do.
  const auto tight = count(memory / 5.5);
  cr_assert(!tight.empty());
  for (const Placement& one : tight)
    for (const plan::StageLayout& stage : one.layout.stages) cr_assert_leq(stage.layers, 4);
}

Test(placement, more_stages_than_units_have_none) {
  const auto cluster = support::h100_nodes(1, 8);
  const models::Model model = model_of(2, 0);
  const perf::Coefficients coefficients = coefficients_of(model, cluster);
  const perf::PerformanceModel perf(model, cluster, coefficients);
  cr_assert(placements(perf, skeleton(5), 1).empty());
  cr_assert(!placements(perf, skeleton(4), 1).empty());
}
