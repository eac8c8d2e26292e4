// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bit>
#include <vector>

#include "core/models/model.h"
#include "core/plan/layout.h"

namespace swell::planner {

/// GPUs of one type on one node, of one allocation there: only such GPUs can form TP groups. The
/// planner counts GPUs by island alone: which GPUs of an island it takes does not matter.
struct Island {
  int node = 0;
  int type = 0;
  plan::GpuMask gpus = 0;
  int part = 0;  ///< as of plan::GroupLayout
  int count() const noexcept { return std::popcount(gpus); }
  friend bool operator==(const Island&, const Island&) = default;
};
using Islands = std::vector<Island>;

/// Adds `gpus` to the island of their node, type and allocation, made where there is none.
void add_to(Islands& islands, int node, int type, plan::GpuMask gpus, int part = 0);
void add_all(Islands& islands, const Islands& more);
/// Adds the GPUs of `stage`.
void add_stage(Islands& islands, const plan::StageLayout& stage);
int count(const Islands& islands) noexcept;

/// Forms TP groups of `tp` GPUs from `islands`, at most `max`, and no more than leave `stage` with
/// a multiple of `step` groups; appends them to it and takes their GPUs out of `islands`. Returns
/// the number of groups.
int take_groups(plan::StageLayout& stage, Islands& islands, int tp, int max = 1 << 30,
                int step = 1);

/// TP and DP degrees that a stage may have.
struct Degrees {
  std::vector<int> tp;  ///< rising; TP x CP, the GPUs of a group
  int max_dp = 1;       ///< every group needs a sample of each micro-batch
  int dp_step = 1;      ///< the DP degree is a multiple of it, so that EP divides DP x CP
  bool divides(int dp) const noexcept { return dp % dp_step == 0; }
};

/// Least DP degree whose DP x CP ranks EP divides; all others are multiples of it.
int dp_step_of(const models::Model& model) noexcept;

/// Degrees for a model with `heads` heads and micro-batches of `micro_batch` samples: TP powers of
/// two up to 8 that divide the heads, DP up to the samples. No CP and no EP.
Degrees degrees_for(int heads, int micro_batch);
/// The same for a model with its CP and EP.
Degrees degrees_for(const models::Model& model, int micro_batch);

}  // namespace swell::planner
