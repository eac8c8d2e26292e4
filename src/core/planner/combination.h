// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/models/model.h"
#include "core/perf/modelled.h"
#include "core/planner/scale_table.h"
#include "core/result.h"

namespace swell::planner {

/// Returns an error that names the first constraint of FlexTrain, section 4.4, that `degrees`
/// breaks, with the number and the reason. The constraints: DP and micro-batches divide the global
/// batch; PP is at most the number of units, or of layers if there are no chunks; TP divides the
/// heads; EP divides the DP x CP ranks. CP and EP come from the model and stay the same when a job
/// scales. REQUIRES: models::check(model).
Result<void> check_combination(const perf::Combination& degrees, const models::Model& model);

/// Returns an error with the reason if CP or EP makes a plan on exactly `gpus` GPUs impossible:
/// each stage needs whole groups of CP GPUs, and EP must divide its DP x CP ranks.
Result<void> check_gpus(int gpus, const models::Model& model);

/// Marks as left out the rows of `table` for which check_gpus() rejects the number of GPUs. The
/// first row stays, since it is the running plan.
void leave_out_indivisible(ScaleTable& table, const models::Model& model);

}  // namespace swell::planner
