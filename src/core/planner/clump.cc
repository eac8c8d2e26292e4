// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/clump.h"

namespace swell::planner {

namespace {

constexpr int kMaxTp = 8;

/// The lowest `count` bits that are set.
plan::GpuMask lowest(plan::GpuMask gpus, int count) noexcept {
  plan::GpuMask rest = gpus;
  for (int i = 0; i < count; ++i) rest &= rest - 1;
  return gpus ^ rest;
}

}  // namespace

void add_to(Clumps& clumps, int node, int type, plan::GpuMask gpus) {
  if (gpus == 0) return;
  for (Clump& clump : clumps)
    if (clump.node == node && clump.type == type) {
      clump.gpus |= gpus;
      return;
    }
  clumps.push_back({node, type, gpus});
}

void add_all(Clumps& clumps, const Clumps& more) {
  for (const Clump& clump : more) add_to(clumps, clump.node, clump.type, clump.gpus);
}

void add_stage(Clumps& clumps, const plan::StageLayout& stage) {
  for (const plan::GroupLayout& group : stage.groups) {
    if (!clumps.empty() && clumps.back().node == group.node && clumps.back().type == group.type)
      clumps.back().gpus |= group.gpus;
    else add_to(clumps, group.node, group.type, group.gpus);
  }
}

int count(const Clumps& clumps) noexcept {
  int sum = 0;
  for (const Clump& clump : clumps) sum += clump.count();
  return sum;
}

int take_groups(plan::StageLayout& stage, Clumps& clumps, int tp, int max) {
  int taken = 0;
  bool emptied = false;
  for (Clump& clump : clumps) {
    if (taken >= max) break;
    for (int left = clump.count(); left >= tp && taken < max; left -= tp) {
      const plan::GpuMask gpus = left == tp ? clump.gpus : lowest(clump.gpus, tp);
      stage.groups.push_back({clump.node, clump.type, 0, gpus});
      clump.gpus ^= gpus;
      ++taken;
    }
    emptied |= clump.gpus == 0;
  }
  if (emptied) std::erase_if(clumps, [](const Clump& clump) { return clump.gpus == 0; });
  return taken;
}

Degrees degrees_for(int heads, int micro_batch) {
  Degrees degrees{{}, micro_batch};
  for (int tp = 1; tp <= kMaxTp && heads % tp == 0; tp *= 2) degrees.tp.push_back(tp);
  return degrees;
}

}  // namespace swell::planner
