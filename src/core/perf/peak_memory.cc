// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/peak_memory.h"

#include <algorithm>
#include <cmath>

#include "core/plan/chunks.h"

namespace swell::perf {

namespace {

constexpr double kSlack = 1e-9;  // a plan that fits exactly must not fail by rounding

/// Returns the activations that an MTP module keeps for one sample: a layer's, and both norms'
/// inputs.
double module_activ_bytes(const Coefficients& k, int tp) noexcept {
  return k.activ_p_bytes / tp + k.activ_np_bytes + 2 * k.activ_bytes;
}

}  // namespace

MemoryModel::Mtp MemoryModel::mtp(bool first, int in_flight, int tp) const noexcept {
  const Coefficients& k = model_.coefficients();
  const models::Chain& chain = model_.chain();
  const int heads = chain.mtp_heads();
  if (heads == 0) return {};
  // The modules' embedding; if it is tied, it is the head's own matrix.
  const double matrix = first || k.tied_embedding ? 0 : 1;
  const double layers = heads * chain.module_parameters();
  return {(layers * k.param_optim_bytes + matrix * k.first.param_optim_bytes) / tp,
          (layers * k.param_bytes + matrix * k.first.param_bytes) / tp,
          heads * in_flight * (module_activ_bytes(k, tp) + k.last.activ_p_bytes / tp)};
}

PeakMemory MemoryModel::peak(int i, int pp, int micro_batches, int layers, int tp, int local_batch,
                             int type, int dp) const noexcept {
  const Coefficients& k = model_.coefficients();
  const double state = k.state_part(dp), gradients = k.gradient_part(dp);
  const int in_flight = std::min(pp - i, micro_batches);
  const bool gradients_meet_activations = micro_batches > pp - i;
  PeakMemory memory;
  memory.param_optim = state * k.param_optim_bytes * layers / tp;
  memory.activ = local_batch * layers * in_flight * (k.activ_p_bytes / tp + k.activ_np_bytes);
  if (gradients_meet_activations) memory.grad = gradients * k.param_bytes * layers / tp;
  auto add = [&](const StageExtras& extras, bool parameters) {
    memory.activ += local_batch * in_flight * extras.activ_p_bytes / tp;
    if (!parameters) return;
    memory.param_optim += state * extras.param_optim_bytes / tp;
    if (gradients_meet_activations) memory.grad += gradients * extras.param_bytes / tp;
  };
  if (i == 0) add(k.first, true);
  if (i == pp - 1) {
    add(k.last, !(k.tied_embedding && pp == 1));
    const Mtp more = mtp(i == 0, in_flight, tp);
    memory.param_optim += state * more.param_optim;
    if (gradients_meet_activations) memory.grad += gradients * more.grad;
    memory.activ += local_batch * more.sample;
  }
  memory.overhead = kMemoryOverhead * model_.cluster().type(type).memory_bytes;
  return memory;
}

MemoryModel::Linear MemoryModel::linear(int i, int pp, int micro_batches, int tp,
                                        int dp) const noexcept {
  const Coefficients& k = model_.coefficients();
  const int in_flight = std::min(pp - i, micro_batches);
  const double state = k.state_part(dp);
  const double grad = micro_batches > pp - i ? k.gradient_part(dp) : 0;
  Linear out{(state * k.param_optim_bytes + grad * k.param_bytes) / tp, 0,
             in_flight * (k.activ_p_bytes / tp + k.activ_np_bytes), 0};
  auto add = [&](const StageExtras& extras, bool parameters) {
    out.sample_fixed += in_flight * extras.activ_p_bytes / tp;
    if (parameters)
      out.fixed += (state * extras.param_optim_bytes + grad * extras.param_bytes) / tp;
  };
  if (i == 0) add(k.first, true);
  if (i == pp - 1) {
    add(k.last, !(k.tied_embedding && pp == 1));
    const Mtp more = mtp(i == 0, in_flight, tp);
    out.fixed += state * more.param_optim + grad * more.grad;
    out.sample_fixed += more.sample;
  }
  return out;
}

int MemoryModel::max_layers(int i, int pp, int micro_batches, int tp, int local_batch, int type,
                            int dp) const noexcept {
  const Linear m = linear(i, pp, micro_batches, tp, dp);
  const double room = (1 - kMemoryOverhead + kSlack) * model_.cluster().type(type).memory_bytes -
                      m.fixed - local_batch * m.sample_fixed;
  const double each = m.per_layer + local_batch * m.sample_layer;
  if (room < each) return 0;
  return each > 0 ? static_cast<int>(std::min(room / each, 1e9)) : 1000000000;
}

int MemoryModel::max_samples(int i, int pp, int micro_batches, int layers, int tp, int type,
                             int dp) const noexcept {
  const Linear m = linear(i, pp, micro_batches, tp, dp);
  const double room = (1 - kMemoryOverhead + kSlack) * model_.cluster().type(type).memory_bytes -
                      m.fixed - layers * m.per_layer;
  const double each = layers * m.sample_layer + m.sample_fixed;
  if (room < each) return 0;
  return each > 0 ? static_cast<int>(std::min(room / each, 1e9)) : 1000000000;
}

double MemoryModel::kept_bytes(const models::Load& load, int tp, int local_batch) const noexcept {
  const Coefficients& k = model_.coefficients();
  return local_batch *
         (load.layers * (k.activ_p_bytes / tp + k.activ_np_bytes) +
          load.modules * module_activ_bytes(k, tp) + load.embeddings * k.first.activ_p_bytes / tp +
          load.heads * k.last.activ_p_bytes / tp);
}

PeakMemory MemoryModel::held(const models::Load& load, int tp, int type, int dp) const noexcept {
  const Coefficients& k = model_.coefficients();
  const double state = k.state_part(dp), gradients = k.gradient_part(dp);
  const double layers = load.layers + load.modules * model_.chain().module_parameters();
  PeakMemory memory;
  memory.param_optim = state * k.param_optim_bytes * layers / tp;
  memory.grad = gradients * k.param_bytes * layers / tp;
  const auto add = [&](const StageExtras& extras) {
    memory.param_optim += state * extras.param_optim_bytes / tp;
    memory.grad += gradients * extras.param_bytes / tp;
  };
  if (load.has_embedding()) add(k.first);
  if (load.has_output() && !(k.tied_embedding && load.has_embedding())) add(k.last);
  memory.overhead = kMemoryOverhead * model_.cluster().type(type).memory_bytes;
  return memory;
}

double MemoryModel::held_bytes(const models::Load& load, int tp, int type, int dp) const noexcept {
  return held(load, tp, type, dp).total();
}

PeakMemory MemoryModel::peak(const schedule::Schedule& schedule,
                             const std::vector<models::Load>& loads, int i, int tp,
                             const plan::GroupLayout& group, int dp) const {
  models::Load all;
  std::vector<double> kept;
  for (const models::Load& load : loads) {
    all += load;
    kept.push_back(kept_bytes(load, tp, group.local_batch));
  }
  PeakMemory memory = held(all, tp, group.type, dp);
  const schedule::Kind frees =
      schedule.splits_weights() ? schedule::Kind::weights : schedule::Kind::backward;
  double now = 0;
  for (const schedule::Operation& pass : schedule.orders[static_cast<std::size_t>(i)]) {
    const double bytes = kept[static_cast<std::size_t>(pass.chunk)];
    if (pass.kind == schedule::Kind::forward) now += bytes;
    else if (pass.kind == frees) now -= bytes;
    memory.activ = std::max(memory.activ, now);
  }
  return memory;
}

PeakMemory MemoryModel::group_peak(const plan::Layout& layout, int i,
                                   const plan::GroupLayout& group) const {
  const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
  const auto passes = layout.is_scheduled() ? plan::schedule_of(layout)
                                            : Result<schedule::Schedule>(schedule::Schedule{});
  if (!layout.is_scheduled() || !passes)
    return peak(i, layout.pp(), layout.micro_batches, stage.layers, stage.tp, group.local_batch,
                group.type, stage.dp());
  return peak(*passes, loads_of(layout, i), i, stage.tp, group, stage.dp());
}

std::vector<models::Load> MemoryModel::loads_of(const plan::Layout& layout, int i) const {
  const std::vector<models::Load> loads = plan::chunk_loads(layout, model_.chain());
  const auto first = loads.begin() + static_cast<std::ptrdiff_t>(i) * layout.chunks();
  return {first, first + layout.chunks()};
}

PeakMemory MemoryModel::stage_peak(const plan::Layout& layout, int i) const {
  const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
  PeakMemory fullest;
  const plan::GroupLayout* before = nullptr;
  for (const plan::GroupLayout& group : stage.groups) {
    if (before && before->type == group.type && before->local_batch == group.local_batch) continue;
    before = &group;
    const PeakMemory one = group_peak(layout, i, group);
    if (one.total() > fullest.total()) fullest = one;
  }
  return fullest;
}

bool MemoryModel::fits(const plan::Layout& layout) const {
  if (layout.is_scheduled()) {
    const auto passes = plan::schedule_of(layout);
    if (!passes) return false;
    for (int i = 0; i < layout.pp(); ++i) {
      const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
      const std::vector<models::Load> loads = loads_of(layout, i);
      const plan::GroupLayout* before = nullptr;
      for (const plan::GroupLayout& group : stage.groups) {
        if (before && before->type == group.type && before->local_batch == group.local_batch)
          continue;
        before = &group;
        if (peak(*passes, loads, i, stage.tp, group, stage.dp()).total() >
            (1 + kSlack) * model_.cluster().type(group.type).memory_bytes)
          return false;
      }
    }
    return true;
  }
  for (int i = 0; i < layout.pp(); ++i) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
    int seen_type = -1, seen_batch = -1;
    for (const plan::GroupLayout& group : stage.groups) {
      if (group.type == seen_type && group.local_batch == seen_batch) continue;
      seen_type = group.type;
      seen_batch = group.local_batch;
      if (max_layers(i, layout.pp(), layout.micro_batches, stage.tp, group.local_batch, group.type,
                     stage.dp()) < stage.layers)
        return false;
    }
  }
  return true;
}

}  // namespace swell::perf
