// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bit>
#include <vector>

#include "core/plan/layout.h"

namespace swell::planner {

/// Some GPUs of one type on one node: those that could form TP groups with each other, since none
/// spans nodes or types. The planner has no other unit of GPUs, and does not care which of a clump
/// it takes.
struct Clump {
  int node = 0;
  int type = 0;
  plan::GpuMask gpus = 0;
  int count() const noexcept { return std::popcount(gpus); }
  friend bool operator==(const Clump&, const Clump&) = default;
};
using Clumps = std::vector<Clump>;

/// Adds GPUs to the clump of their node and type.
void add_to(Clumps& clumps, int node, int type, plan::GpuMask gpus);
void add_all(Clumps& clumps, const Clumps& more);
/// The GPUs of `stage`.
void add_stage(Clumps& clumps, const plan::StageLayout& stage);
int count(const Clumps& clumps) noexcept;

/// Forms as many TP groups of `tp` GPUs as `clumps` allow, at most `max`, appends them to `stage`
/// and takes their GPUs out of `clumps`. Returns how many.
int take_groups(plan::StageLayout& stage, Clumps& clumps, int tp, int max = 1 << 30);

/// The degrees that a stage may have.
struct Degrees {
  std::vector<int> tp;  ///< rising
  int max_dp = 1;       ///< every group needs a sample of each micro-batch
};

/// TP: powers of two up to 8 that divide the model's heads. DP: up to the samples of a micro-batch.
Degrees degrees_for(int heads, int micro_batch);

}  // namespace swell::planner
