// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/gpu_pool.h"

#include <algorithm>
#include <bit>

namespace swell::policy {

namespace {

bool is_near(const planner::Islands& near, int node) noexcept {
  return std::any_of(near.begin(), near.end(),
                     [&](const planner::Island& island) { return island.node == node; });
}

}  // namespace

GpuPool::GpuPool(const ClusterView& view) {
  const cluster::Cluster& machines = *view.machines;
  for (int node = 0; node < static_cast<int>(machines.nodes().size()); ++node) {
    first_.push_back(slots_.size());
    const NodeView* seen = node < static_cast<int>(view.nodes.size())
                               ? &view.nodes[static_cast<std::size_t>(node)]
                               : nullptr;
    const bool up = seen && seen->total.gpus > 0;
    for (int index = 0; index < static_cast<int>(machines.node(node).gpus.size()); ++index) {
      const int type = machines.type_of({node, index});
      Slot* found = slot(node, type);
      if (!found) found = &slots_.emplace_back(Slot{node, type, 0, 0});
      const plan::GpuMask bit = plan::GpuMask{1} << index;
      if (up) found->all |= bit;
      if (up) found->free |= seen->free_gpus & bit;
    }
  }
}

GpuPool::Slot* GpuPool::slot(int node, int type) noexcept {
  for (std::size_t i = first_[static_cast<std::size_t>(node)];
       i < slots_.size() && slots_[i].node == node; ++i)
    if (slots_[i].type == type) return &slots_[i];
  return nullptr;
}

const GpuPool::Slot* GpuPool::slot(int node, int type) const noexcept {
  return const_cast<GpuPool*>(this)->slot(node, type);
}

void GpuPool::give(const planner::Islands& gpus) {
  for (const planner::Island& island : gpus)
    if (Slot* found = slot(island.node, island.type)) found->free |= island.gpus & found->all;
}

void GpuPool::take(const planner::Islands& gpus) {
  for (const planner::Island& island : gpus)
    if (Slot* found = slot(island.node, island.type)) found->free &= ~island.gpus;
}

bool GpuPool::has(const planner::Islands& gpus) const noexcept {
  return std::all_of(gpus.begin(), gpus.end(), [&](const planner::Island& island) {
    const Slot* found = slot(island.node, island.type);
    return found && (island.gpus & ~found->free) == 0;
  });
}

int GpuPool::free(int type) const noexcept {
  int sum = 0;
  for (const Slot& slot : slots_) sum += slot.type == type ? std::popcount(slot.free) : 0;
  return sum;
}

int GpuPool::all(int type) const noexcept {
  int sum = 0;
  for (const Slot& slot : slots_) sum += slot.type == type ? std::popcount(slot.all) : 0;
  return sum;
}

int GpuPool::per_node(int type) const noexcept {
  int max = 0;
  for (const Slot& slot : slots_)
    if (slot.type == type) max = std::max(max, std::popcount(slot.all));
  return max;
}

int GpuPool::full_nodes(int type) const noexcept {
  const int max = per_node(type);
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.type == type && max > 0 && std::popcount(slot.all) == max;
  }));
}

planner::Island GpuPool::cut(Slot& slot, int gpus) noexcept {
  plan::GpuMask rest = slot.free;
  for (int i = 0; i < gpus; ++i) rest &= rest - 1;
  const planner::Island taken{slot.node, slot.type, slot.free ^ rest};
  slot.free = rest;
  return taken;
}

std::optional<planner::Islands> GpuPool::take_on_one(int type, int gpus) {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    const int free = std::popcount(slot.free);
    if (slot.type == type && free >= gpus && (!best || free < std::popcount(best->free)))
      best = &slot;
  }
  if (!best || gpus < 1) return std::nullopt;
  return planner::Islands{cut(*best, gpus)};
}

std::optional<planner::Islands> GpuPool::take_whole(int type, int nodes,
                                                    const planner::Islands& near) {
  const int per_node = this->per_node(type);
  std::vector<Slot*> idle;
  for (Slot& slot : slots_)
    if (slot.type == type && per_node > 0 && std::popcount(slot.free) == per_node)
      idle.push_back(&slot);
  if (static_cast<int>(idle.size()) < nodes || nodes < 1) return std::nullopt;
  std::stable_partition(idle.begin(), idle.end(),
                        [&](const Slot* slot) { return is_near(near, slot->node); });
  planner::Islands taken;
  for (int i = 0; i < nodes; ++i)
    taken.push_back(cut(*idle[static_cast<std::size_t>(i)], per_node));
  return taken;
}

std::optional<planner::Islands> GpuPool::take_packed(int type, int gpus,
                                                     const planner::Islands& near) {
  if (gpus < 1 || free(type) < gpus) return std::nullopt;
  planner::Islands taken;
  if (near.empty())
    if (auto one = take_on_one(type, gpus)) return one;
  std::vector<Slot*> order;
  for (Slot& slot : slots_)
    if (slot.type == type && slot.free != 0) order.push_back(&slot);
  std::stable_sort(order.begin(), order.end(), [&](const Slot* a, const Slot* b) {
    const bool near_a = is_near(near, a->node), near_b = is_near(near, b->node);
    if (near_a != near_b) return near_a;
    return std::popcount(a->free) > std::popcount(b->free);
  });
  for (Slot* slot : order) {
    const int left = gpus - planner::count(taken), here = std::popcount(slot->free);
    if (left == 0) break;
    if (here >= left &&
        !is_near(near, slot->node)) {  // the rest goes to the node that it fills best
      const auto rest = take_on_one(type, left);
      if (rest) planner::add_all(taken, *rest);
      break;
    }
    taken.push_back(cut(*slot, std::min(left, here)));
  }
  return taken;
}

}  // namespace swell::policy
