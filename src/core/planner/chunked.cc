// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/chunked.h"
#include "core/count_of.h"
#include "core/plan/max_passes.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/planner/placement.h"

namespace swell::planner {

namespace {

constexpr int kMaxChunks = 4;

bool has_layers(const plan::Layout& layout) {
  return std::all_of(layout.stages.begin(), layout.stages.end(),
                     [](const plan::StageLayout& stage) { return stage.layers > 0; });
}

}  // namespace

std::optional<Solution> chunked(Evaluator& evaluator, const plan::Layout& skeleton, double unless) {
  std::optional<Solution> best;
  const long passes = static_cast<long>(skeleton.pp()) * skeleton.micro_batches;
  for (int chunks = 1; chunks <= kMaxChunks && passes * chunks <= plan::kMaxPasses; ++chunks) {
    // Chunks that have no unit at all gain nothing.
    if (skeleton.pp() * chunks > evaluator.perf().chain().units() || evaluator.over()) break;
    for (Placement& placed : placements(evaluator.perf(), skeleton, chunks)) {
      if (!has_layers(placed.layout)) continue;
      placed.layout.schedule = "interleaved";
      if (!evaluator.memory().fits(placed.layout)) continue;
      const double seconds = evaluator.seconds(placed.layout);
      if (!(seconds < (best ? best->seconds : unless))) continue;
      best = Solution{
          std::move(placed.layout),
          {},
          seconds,
          fmt::format("PP: {} of {}, interleaved, placed by {}", count_of(skeleton.pp(), "stage"),
                      count_of(chunks, "chunk"), placed.rule)};
    }
  }
  return best;
}

}  // namespace swell::planner
