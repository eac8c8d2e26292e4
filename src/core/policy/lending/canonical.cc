// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/canonical.h"

#include <algorithm>
#include <bit>
#include <map>
#include <type_traits>

namespace swell::policy {

namespace {

/// Appends the bytes of numbers to a key.
class Writer {
 public:
  explicit Writer(std::string& into) : into_(into) {}
  template <typename... T>
  void operator()(T... values) {
    (add(values), ...);
  }

 private:
  template <typename T>
  void add(T value) {
    static_assert(std::is_arithmetic_v<T>);
    into_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string& into_;
};

void write_extras(Writer& write, const perf::StageExtras& extras) {
  write(extras.param_bytes, extras.param_optim_bytes, extras.activ_p_bytes);
}

}  // namespace

Canonical::Canonical(const Training& training, const plan::Layout& current,
                     const std::vector<cluster::GpuRef>& free, const cluster::Cluster& machines)
    : all_(machines), current_(current) {
  std::map<int, plan::GpuMask> used;
  for (const plan::StageLayout& stage : current.stages)
    for (const plan::GroupLayout& group : stage.groups) used[group.node] |= group.gpus;
  std::vector<int> order;
  for (const auto& [node, gpus] : used) order.push_back(node);
  for (const cluster::GpuRef gpu : free) {
    if (!used.contains(gpu.node)) order.push_back(gpu.node);
    used[gpu.node] |= plan::GpuMask{1} << gpu.index;
  }
  std::map<int, int> number;
  std::map<int, int> racks;
  for (int node : order) {
    number[node] = add_node(node, used[node]);
    maps_.back().rack =
        racks.try_emplace(machines.node(node).rack, static_cast<int>(racks.size())).first->second;
  }
  for (plan::StageLayout& stage : current_.stages)
    for (plan::GroupLayout& group : stage.groups) {
      group.node = number[group.node];
      group.gpus = renumber(maps_[static_cast<std::size_t>(group.node)], group.gpus);
    }
  for (const cluster::GpuRef gpu : free) {
    const int node = number[gpu.node];
    free_.push_back(
        {node, maps_[static_cast<std::size_t>(node)].number[static_cast<std::size_t>(gpu.index)],
         gpu.part});
  }
  write_key(training);
}

int Canonical::add_node(int node, plan::GpuMask used) {
  NodeMap map;
  map.node = node;
  const int gpus = static_cast<int>(all_.node(node).gpus.size());
  for (const bool wanted : {true, false})
    for (int gpu = 0; gpu < gpus; ++gpu)
      if (((used >> gpu) & 1) == (wanted ? 1U : 0U)) map.gpus.push_back(gpu);
  map.number.resize(map.gpus.size());
  for (std::size_t i = 0; i < map.gpus.size(); ++i)
    map.number[static_cast<std::size_t>(map.gpus[i])] = static_cast<int>(i);
  maps_.push_back(std::move(map));
  return static_cast<int>(maps_.size()) - 1;
}

plan::GpuMask Canonical::renumber(const NodeMap& map, plan::GpuMask gpus) const {
  plan::GpuMask renumbered = 0;
  for (; gpus != 0; gpus &= gpus - 1)
    renumbered |= plan::GpuMask{1} << map.number[static_cast<std::size_t>(std::countr_zero(gpus))];
  return renumbered;
}

void Canonical::write_key(const Training& training) {
  Writer write(key_);
  const models::Model& model = *training.model;
  key_ += model.name;
  write(model.layers, model.hidden, model.heads, model.kv_heads, model.ffn, model.gated_mlp,
        model.tied_embedding, model.vocab, model.sequence, model.global_batch, model.moe.experts,
        model.moe.active, model.moe.shared, model.moe.expert_ffn, model.mtp_heads, model.head_dim,
        model.positions);
  const perf::Coefficients& k = *training.coefficients;
  for (const perf::TypeCoefficients& type : k.types)
    write(type.comp_s, type.backward, type.optim_s, type.overlap, type.launch_s, type.whole_s,
          type.weights_share);
  write(k.activ_bytes, k.param_bytes, k.param_optim_bytes, k.activ_p_bytes, k.activ_np_bytes,
        k.head_layers, k.sharded_state, k.sharded_gradients, k.max_shards, k.tied_embedding,
        k.plan_error, k.plan_error_seed);
  write(k.measured.others, k.measured.plans.size());
  for (const auto& [shape, factor] : k.measured.plans) write(shape, factor);
  write_extras(write, k.first);
  write_extras(write, k.last);
  write(static_cast<int>(training.consistency), current_.micro_batches, current_.stages.size());
  write(training.takes_chunks, current_.schedule.size());
  key_ += current_.schedule;
  for (const plan::StageLayout& stage : current_.stages) {
    write(stage.layers, stage.tp, stage.groups.size(), stage.chunks.size());
    for (const int units : stage.chunks) write(units);
    for (const plan::GroupLayout& group : stage.groups)
      write(group.node, group.type, group.local_batch, group.gpus, group.part);
  }
  for (const cluster::GpuRef gpu : free_) write(gpu.node, gpu.index, gpu.part);
  for (const cluster::GpuType& type : all_.types())
    write(type.memory_bytes, type.link_bytes_per_s, type.link_saturation_bytes, type.bf16_tflops);
  write(all_.interconnect().cross_rack_factor);
  for (std::size_t a = 0; a < maps_.size(); ++a) {
    const cluster::Node& node = all_.node(maps_[a].node);
    write(maps_[a].rack, node.network_bytes_per_s, node.network_cards);
    for (int gpu : maps_[a].gpus) write(node.gpus[static_cast<std::size_t>(gpu)]);
    if (!all_.interconnect().is_regular())
      for (std::size_t b = 0; b < a; ++b) write(all_.node_bandwidth(maps_[a].node, maps_[b].node));
  }
}

cluster::Cluster Canonical::machines() const {
  std::vector<cluster::Node> nodes;
  cluster::Interconnect interconnect{all_.interconnect().cross_rack_factor};
  for (std::size_t a = 0; a < maps_.size(); ++a) {
    const cluster::Node& node = all_.node(maps_[a].node);
    cluster::Node renumbered{"n" + std::to_string(a + 1),
                             maps_[a].rack,
                             {},
                             node.network_bytes_per_s,
                             node.network_cards};
    for (int gpu : maps_[a].gpus)
      renumbered.gpus.push_back(node.gpus[static_cast<std::size_t>(gpu)]);
    nodes.push_back(std::move(renumbered));
    if (!all_.interconnect().is_regular())
      for (std::size_t b = 0; b < a; ++b)
        interconnect.measured[{static_cast<int>(b), static_cast<int>(a)}] =
            all_.node_bandwidth(maps_[b].node, maps_[a].node);
  }
  return cluster::Cluster::make("part", all_.types(), std::move(nodes), std::move(interconnect))
      .value();
}

plan::Layout Canonical::original(const plan::Layout& layout) const {
  plan::Layout original = layout;
  for (plan::StageLayout& stage : original.stages)
    for (plan::GroupLayout& group : stage.groups) {
      const NodeMap& map = maps_[static_cast<std::size_t>(group.node)];
      plan::GpuMask gpus = 0;
      for (plan::GpuMask left = group.gpus; left != 0; left &= left - 1)
        gpus |= plan::GpuMask{1} << map.gpus[static_cast<std::size_t>(std::countr_zero(left))];
      group.node = map.node;
      group.gpus = gpus;
    }
  return original;
}

cluster::GpuRef Canonical::original(cluster::GpuRef gpu) const {
  const NodeMap& map = maps_[static_cast<std::size_t>(gpu.node)];
  return {map.node, map.gpus[static_cast<std::size_t>(gpu.index)], gpu.part};
}

}  // namespace swell::policy
