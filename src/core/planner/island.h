// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bit>
#include <vector>

#include "core/models/model.h"
#include "core/plan/layout.h"

namespace swell::planner {

/// GPUs of one type on one node and in one allocation: a TP group cannot span two islands. The GPUs
/// of an island are interchangeable, so the planner only counts them.
struct Island {
  int node = 0;
  int type = 0;
  plan::GpuMask gpus = 0;
  int part = 0;  ///< the allocation on the node, as plan::GroupLayout::part
  int count() const noexcept { return std::popcount(gpus); }
  friend bool operator==(const Island&, const Island&) = default;
};
using Islands = std::vector<Island>;

/// Adds `gpus` to the island of their node, type and allocation. Creates the island if needed.
void add_to(Islands& islands, int node, int type, plan::GpuMask gpus, int part = 0);
void add_all(Islands& islands, const Islands& more);
/// Adds the GPUs of `stage`.
void add_stage(Islands& islands, const plan::StageLayout& stage);
int count(const Islands& islands) noexcept;

/// Forms TP groups of `tp` GPUs from `islands` and appends them to `stage`: at most `max`, and so
/// that the number of groups of `stage` is a multiple of `step`. Takes their GPUs out of `islands`.
/// Returns the number of new groups.
int take_groups(plan::StageLayout& stage, Islands& islands, int tp, int max = 1 << 30,
                int step = 1);

/// TP and DP degrees that a stage may have.
struct Degrees {
  std::vector<int> tp;  ///< rising; each is TP x CP, the GPUs of a group
  int max_dp = 1;       ///< limit: every group needs a sample of each micro-batch
  int dp_step = 1;      ///< DP degrees are multiples of this, so that EP divides DP x CP
  bool divides(int dp) const noexcept { return dp % dp_step == 0; }
};

/// Returns the smallest DP degree for which EP divides DP x CP. All valid DP degrees are multiples.
int dp_step_of(const models::Model& model) noexcept;

/// Returns the degrees for a model without CP and EP that has `heads` heads, and micro-batches of
/// `micro_batch` samples: TP powers of two up to 8 that divide the heads, DP up to the number of
/// samples.
Degrees degrees_for(int heads, int micro_batch);
/// Returns the same for a model with its CP and EP. TP divides the key and value heads, too.
Degrees degrees_for(const models::Model& model, int micro_batch);

}  // namespace swell::planner
