// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/island.h"

#include <algorithm>
#include <numeric>

namespace swell::planner {

namespace {

constexpr int kMaxTp = 8;

/// Returns the lowest `count` set bits of `gpus`.
plan::GpuMask lowest(plan::GpuMask gpus, int count) noexcept {
  plan::GpuMask rest = gpus;
  for (int i = 0; i < count; ++i) rest &= rest - 1;
  return gpus ^ rest;
}

}  // namespace

void add_to(Islands& islands, int node, int type, plan::GpuMask gpus, int part) {
  if (gpus == 0) return;
  for (Island& island : islands)
    if (island.node == node && island.type == type && island.part == part) {
      island.gpus |= gpus;
      return;
    }
  islands.push_back({node, type, gpus, part});
}

void add_all(Islands& islands, const Islands& more) {
  for (const Island& island : more)
    add_to(islands, island.node, island.type, island.gpus, island.part);
}

void add_stage(Islands& islands, const plan::StageLayout& stage) {
  for (const plan::GroupLayout& group : stage.groups) {
    if (!islands.empty() && plan::together(islands.back(), group) &&
        islands.back().type == group.type)
      islands.back().gpus |= group.gpus;
    else add_to(islands, group.node, group.type, group.gpus, group.part);
  }
}

int count(const Islands& islands) noexcept {
  int sum = 0;
  for (const Island& island : islands) sum += island.count();
  return sum;
}

int take_groups(plan::StageLayout& stage, Islands& islands, int tp, int max, int step) {
  if (step > 1) {
    int room = 0;
    for (const Island& island : islands) room += island.count() / tp;
    max = (stage.dp() + std::min(room, max)) / step * step - stage.dp();
  }
  int taken = 0;
  bool emptied = false;
  for (Island& island : islands) {
    if (taken >= max) break;
    for (int left = island.count(); left >= tp && taken < max; left -= tp) {
      const plan::GpuMask gpus = left == tp ? island.gpus : lowest(island.gpus, tp);
      stage.groups.push_back({island.node, island.type, 0, gpus, island.part});
      island.gpus ^= gpus;
      ++taken;
    }
    emptied |= island.gpus == 0;
  }
  if (emptied) std::erase_if(islands, [](const Island& island) { return island.gpus == 0; });
  return taken;
}

Degrees degrees_for(int heads, int micro_batch) {
  Degrees degrees{{}, micro_batch};
  for (int tp = 1; tp <= kMaxTp && heads % tp == 0; tp *= 2) degrees.tp.push_back(tp);
  return degrees;
}

int dp_step_of(const models::Model& model) noexcept {
  return model.ep / std::gcd(model.ep, model.cp);
}

Degrees degrees_for(const models::Model& model, int micro_batch) {
  Degrees degrees = degrees_for(std::gcd(model.heads, model.kv_heads), micro_batch);
  for (int& tp : degrees.tp) tp *= model.cp;
  degrees.dp_step = dp_step_of(model);
  return degrees;
}

}  // namespace swell::planner
