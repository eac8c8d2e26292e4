// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/peak_memory.h"

#include <algorithm>
#include <cmath>

namespace swell::perf {

namespace {

constexpr double kSlack = 1e-9;  // a plan that fits exactly must not fail by rounding

}  // namespace

PeakMemory MemoryModel::peak(int i, int pp, int micro_batches, int layers, int tp, int local_batch,
                             int type) const noexcept {
  const Coefficients& k = model_.coefficients();
  const int in_flight = std::min(pp - i, micro_batches);
  const bool gradients_meet_activations = micro_batches > pp - i;
  PeakMemory memory;
  memory.param_optim = k.param_optim_bytes * layers / tp;
  memory.activ = local_batch * layers * in_flight * (k.activ_p_bytes / tp + k.activ_np_bytes);
  if (gradients_meet_activations) memory.grad = k.param_bytes * layers / tp;
  auto add = [&](const StageExtras& extras, bool parameters) {
    memory.activ += local_batch * in_flight * extras.activ_p_bytes / tp;
    if (!parameters) return;
    memory.param_optim += extras.param_optim_bytes / tp;
    if (gradients_meet_activations) memory.grad += extras.param_bytes / tp;
  };
  if (i == 0) add(k.first, true);
  if (i == pp - 1) add(k.last, !(k.tied_embedding && pp == 1));
  memory.overhead = kMemoryOverhead * model_.cluster().type(type).memory_bytes;
  return memory;
}

MemoryModel::Linear MemoryModel::linear(int i, int pp, int micro_batches, int tp) const noexcept {
  const Coefficients& k = model_.coefficients();
  const int in_flight = std::min(pp - i, micro_batches);
  const double grad = micro_batches > pp - i ? 1 : 0;
  Linear out{(k.param_optim_bytes + grad * k.param_bytes) / tp, 0,
             in_flight * (k.activ_p_bytes / tp + k.activ_np_bytes), 0};
  auto add = [&](const StageExtras& extras, bool parameters) {
    out.sample_fixed += in_flight * extras.activ_p_bytes / tp;
    if (parameters) out.fixed += (extras.param_optim_bytes + grad * extras.param_bytes) / tp;
  };
  if (i == 0) add(k.first, true);
  if (i == pp - 1) add(k.last, !(k.tied_embedding && pp == 1));
  return out;
}

int MemoryModel::max_layers(int i, int pp, int micro_batches, int tp, int local_batch,
                            int type) const noexcept {
  const Linear m = linear(i, pp, micro_batches, tp);
  const double room = (1 - kMemoryOverhead + kSlack) * model_.cluster().type(type).memory_bytes -
                      m.fixed - local_batch * m.sample_fixed;
  const double each = m.per_layer + local_batch * m.sample_layer;
  if (room < each) return 0;
  return each > 0 ? static_cast<int>(std::min(room / each, 1e9)) : 1000000000;
}

int MemoryModel::max_samples(int i, int pp, int micro_batches, int layers, int tp,
                             int type) const noexcept {
  const Linear m = linear(i, pp, micro_batches, tp);
  const double room = (1 - kMemoryOverhead + kSlack) * model_.cluster().type(type).memory_bytes -
                      m.fixed - layers * m.per_layer;
  const double each = layers * m.sample_layer + m.sample_fixed;
  if (room < each) return 0;
  return each > 0 ? static_cast<int>(std::min(room / each, 1e9)) : 1000000000;
}

PeakMemory MemoryModel::stage_peak(const plan::Layout& layout, int i) const noexcept {
  const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
  PeakMemory fullest;
  for (const plan::GroupLayout& group : stage.groups) {
    const PeakMemory one = peak(i, layout.pp(), layout.micro_batches, stage.layers, stage.tp,
                                group.local_batch, group.type);
    if (one.total() > fullest.total()) fullest = one;
  }
  return fullest;
}

bool MemoryModel::fits(const plan::Layout& layout) const noexcept {
  for (int i = 0; i < layout.pp(); ++i) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
    int seen_type = -1, seen_batch = -1;
    for (const plan::GroupLayout& group : stage.groups) {
      if (group.type == seen_type && group.local_batch == seen_batch) continue;
      seen_type = group.type;
      seen_batch = group.local_batch;
      if (max_layers(i, layout.pp(), layout.micro_batches, stage.tp, group.local_batch,
                     group.type) < stage.layers)
        return false;
    }
  }
  return true;
}

}  // namespace swell::perf
