// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/chunk_costs.h"

#include <algorithm>

#include "core/perf/peak_memory.h"
#include "core/plan/chunks.h"

namespace swell::perf {

namespace {

/// Weight gradients' share of a backward pass if it was not observed; right only for layers of
/// matrix products.
constexpr double kWeightsShare = 0.5;

/// Returns the smallest share among the stage's GPUs: with it, delaying weights gains least.
double weights_share(const PerformanceModel& perf, const plan::StageLayout& stage) {
  double least = 1;
  for (const plan::GroupLayout& group : stage.groups) {
    const double seen =
        perf.coefficients().types[static_cast<std::size_t>(group.type)].weights_share;
    least = std::min(least, seen > 0 ? seen : kWeightsShare);
  }
  return least;
}

}  // namespace

schedule::Costs chunk_costs(const PerformanceModel& perf, const plan::Layout& layout) {
  return chunk_costs(perf, layout, plan::chunk_loads(layout, perf.chain()));
}

schedule::Costs chunk_costs(const PerformanceModel& perf, const plan::Layout& layout,
                            const std::vector<models::Load>& loads) {
  const MemoryModel memory(perf);
  const std::size_t stages = layout.stages.size(), chunks = loads.size() / stages;
  schedule::Costs costs;
  costs.shape = {static_cast<int>(stages), static_cast<int>(chunks), layout.micro_batches};
  costs.chunks.resize(loads.size());
  for (std::size_t i = 0; i < stages; ++i) {
    const plan::StageLayout& stage = layout.stages[i];
    const plan::StageLayout& next = layout.stages[i + 1 == stages ? 0 : i + 1];
    const plan::StageLayout& before = layout.stages[i == 0 ? stages - 1 : i - 1];
    const double weights = weights_share(perf, stage);
    models::Load all;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      const models::Load& load = loads[i * chunks + chunk];
      schedule::ChunkCost& cost = costs.chunks[i * chunks + chunk];
      all += load;
      const PerformanceModel::Passes passes = perf.chunk_passes(stage, load);
      cost.seconds = {passes.fwd, (1 - weights) * passes.bwd, weights * passes.bwd};
      if (perf.sends() == Sends::counted && stages > 1) {
        const double bytes = perf.coefficients().activ_bytes;
        const int cp = perf.model().cp;
        const bool first = i == 0 && chunk == 0, last = i + 1 == stages && chunk + 1 == chunks;
        if (!last) cost.send_forward_s = send_s(stage, next, bytes, perf.cluster(), cp);
        if (!first) cost.send_backward_s = send_s(stage, before, bytes, perf.cluster(), cp);
      }
    }
    costs.finish_s.push_back(perf.load_times(stage, all).extra());
    const std::vector<models::Load> own(
        loads.begin() + static_cast<std::ptrdiff_t>(i * chunks),
        loads.begin() + static_cast<std::ptrdiff_t>((i + 1) * chunks));
    double held = 0;
    for (const plan::GroupLayout& group : stage.groups) {
      held = std::max(held, memory.held_bytes(all, stage.tp, group.type, stage.dp()));
      for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        double& kept = costs.chunks[i * chunks + chunk].bytes[0];
        kept = std::max(kept, memory.kept_bytes(own[chunk], stage.tp, group.local_batch));
      }
    }
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      auto& bytes = costs.chunks[i * chunks + chunk].bytes;
      // Weight passes free the activations, since they need them as inputs of the layers.
      bytes[static_cast<std::size_t>(schedule::Kind::weights)] = -bytes[0];
    }
    costs.static_bytes.push_back(held);
  }
  return costs;
}

}  // namespace swell::perf
