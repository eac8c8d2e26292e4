// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/memory.h"

#include <algorithm>
#include <cmath>

#include "sim/judge/compute.h"

namespace swell::sim::judge {

namespace {

constexpr double kPage = 2.0 * 1024 * 1024;
constexpr double kHoles = 1.04;     // holes of PyTorch's caching allocator: 3 to 6 % of live memory
constexpr double kContext = 0.6e9;  // CUDA's context
constexpr double kCommunicator = 0.15e9;  // NCCL's buffers for one group of GPUs
// Bytes that one layer keeps for its backward pass (Korthikanti et al.), for each element of the
// hidden state (kWhole, kSplit) or for each attention score (kScore).
constexpr double kWhole = 10;  // norms' inputs, dropout masks: on every GPU of a TP group
constexpr double kSplit = 24;  // inside attention and an MLP four times wider, divided by TP
constexpr double kScore = 5;   // only if attention is not fused
constexpr double kHalf = 2;
constexpr double kLogit = kHalf + 4 + 4;

}  // namespace

double Memory::reserved() const noexcept {
  return std::ceil(allocated() * kHoles / kPage) * kPage + context;
}

double logits_bytes(const models::Model& m, int tp, int samples) {
  return static_cast<double>(samples) * m.sequence * m.vocab / tp * kLogit;
}

namespace {

/// Load of a stage, and the micro-batches that it keeps at its peak.
struct Held {
  models::Load load;
  /// Kept micro-batches, counted once for each layer and MTP module, for each head, and for the
  /// inputs of each module.
  double layers = 0, heads = 0, modules = 0;
};

Memory peak_of(const Held& held, const plan::StageLayout& stage, int pp,
               const plan::GroupLayout& group, const models::Model& m, const Software& software) {
  const double tp = stage.tp, dp = stage.dp(), samples = group.local_batch, s = m.sequence,
               h = m.hidden;
  const double parameters = parameters_of(held.load, m) / tp;

  Memory memory;
  memory.state = parameters * (software.state_bytes + software.sharded_bytes / dp);
  // Gradients live from the first micro-batch's backward pass to the update.
  memory.gradients = parameters * kHalf;
  double layer = s * h * (kWhole + kSplit * m.ffn / (4 * h) / tp);
  if (m.moe.experts > 0)
    layer = s * h *
            (kWhole + (8 + 16.0 * (m.moe.active + m.moe.shared) * m.moe.expert_ffn / (4 * h)) / tp);
  if (software.score_bytes > 0) layer += kScore * m.heads * s * s / tp;
  const double kept = software.repeated_forward > 0 ? kHalf * s * h : layer;
  memory.activations = samples * held.layers * kept;
  // A module also keeps the inputs of its two norms.
  if (held.modules > 0) memory.activations += samples * held.modules * 2 * kHalf * s * h;
  if (software.repeated_forward > 0)
    memory.activations += samples * layer;  // the layer that is being recomputed
  memory.logits = logits_bytes(m, stage.tp, group.local_batch) * held.heads;
  if (dp > 1)
    memory.buffers = 2 * std::min(software.bucket_bytes, parameters * software.gradient_bytes);
  memory.context =
      kContext + kCommunicator * ((tp > 1 ? 1 : 0) + (dp > 1 ? 1 : 0) + (pp > 1 ? 1 : 0));
  return memory;
}

}  // namespace

Memory peak(const plan::Layout& layout, int index, const plan::GroupLayout& group,
            const models::Model& m, const Software& software) {
  if (layout.is_scheduled())
    return peak(layout, Pipeline::of(layout, m), index, group, m, software);
  const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(index)];
  const int pp = layout.pp();
  const models::Load load = models::Chain(m).stage(stage.layers, index == 0, index == pp - 1);
  const double under_way = std::min(pp - index, layout.micro_batches);
  return peak_of({load, under_way * (load.layers + load.modules), under_way * load.heads,
                  under_way * load.modules},
                 stage, pp, group, m, software);
}

Memory peak(const plan::Layout& layout, const Pipeline& pipeline, int index,
            const plan::GroupLayout& group, const models::Model& m, const Software& software) {
  const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(index)];
  const schedule::Schedule& schedule = pipeline.schedule;
  const schedule::Kind frees =
      schedule.splits_weights() ? schedule::Kind::weights : schedule::Kind::backward;
  Held held{pipeline.stage(index)};
  Memory most;
  double layers = 0, heads = 0, modules = 0;
  for (const schedule::Operation& pass : schedule.orders[static_cast<std::size_t>(index)]) {
    const double sign = pass.kind == schedule::Kind::forward ? 1 : pass.kind == frees ? -1 : 0;
    const models::Load& load = pipeline.at(index, pass.chunk);
    layers += sign * (load.layers + load.modules);
    heads += sign * load.heads;
    modules += sign * load.modules;
    if (sign <= 0) continue;
    held.layers = layers;
    held.heads = heads;
    held.modules = modules;
    const Memory now = peak_of(held, stage, layout.pp(), group, m, software);
    if (now.allocated() > most.allocated()) most = now;
  }
  return most;
}

bool fits(const plan::Layout& layout, const cluster::Cluster& cluster, const models::Model& model,
          const Software& software) {
  for (int i = 0; i < layout.pp(); ++i)
    for (const plan::GroupLayout& group : layout.stages[static_cast<std::size_t>(i)].groups)
      if (peak(layout, i, group, model, software).reserved() >
          cluster.type(group.type).memory_bytes)
        return false;
  return true;
}

}  // namespace swell::sim::judge
