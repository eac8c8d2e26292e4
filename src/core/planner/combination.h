// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/models/model.h"
#include "core/perf/modelled.h"
#include "core/result.h"

namespace swell::planner {

/// Degrees that stay as they are when a job scales.
struct KeptDegrees {
  int cp = 1;  ///< context parallelism: ranks that share the tokens of a sample
  int ep = 1;  ///< expert parallelism: ranks that share the experts of a layer
};

/// Names the first constraint of FlexTrain, section 4.4, that `degrees` breaks, with the number and
/// the reason: the global batch is divided evenly over DP and micro-batches; PP is at most the
/// number of units, or without chunks of layers; TP divides the heads, CP the tokens of a sample,
/// and EP the experts and the DP x CP ranks.
Result<void> check_combination(const perf::Combination& degrees, const models::Model& model,
                               KeptDegrees kept = {});

}  // namespace swell::planner
