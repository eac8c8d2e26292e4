// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/models/model.h"
#include "core/perf/modelled.h"
#include "core/planner/scale_table.h"
#include "core/result.h"

namespace swell::planner {

/// Names the first constraint of FlexTrain, section 4.4, that `degrees` breaks, with the number and
/// the reason: the global batch is divided evenly over DP and micro-batches; PP is at most the
/// number of units, or without chunks of layers; TP divides the heads, and EP the DP x CP ranks. CP
/// and EP are the model's, and stay as they are when a job scales. REQUIRES: models::check(model).
Result<void> check_combination(const perf::Combination& degrees, const models::Model& model);

/// Names why no plan uses exactly `gpus` GPUs, where CP or EP is the reason: each stage has whole
/// groups of CP GPUs, and DP x CP ranks that EP divides.
Result<void> check_gpus(int gpus, const models::Model& model);

/// Leaves out the rows of `table` whose numbers of GPUs check_gpus() excludes, but for the first,
/// which runs.
void leave_out_indivisible(ScaleTable& table, const models::Model& model);

}  // namespace swell::planner
