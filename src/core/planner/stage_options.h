// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <utility>
#include <vector>

#include "core/planner/evaluator.h"
#include "core/planner/island.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// One way to form a stage from some GPUs, for any number of layers and any position. In the
/// performance model, all times of a stage except those of MTP heads are proportional to its
/// layers.
struct StageOption {
  int tp = 1;
  std::vector<int> gpus;                     ///< number taken of each island
  std::vector<std::pair<int, int>> samples;  ///< (GPU type, samples of all its groups together)
  std::vector<std::pair<int, int>> fullest;  ///< (GPU type, samples of its fullest group)
  double comp = 0;        ///< seconds for each layer: forward and backward pass of one micro-batch
  double bwd = 0;         ///< the backward part of `comp`
  double extra = 0;       ///< seconds for each layer: synchronization without overlap, optimizer
  double heads_comp = 0;  ///< time that all heads add on the last stage, if there is MTP
};

/// Returns all options with the GPUs of `gpus`. Groups of one type share their samples as evenly as
/// possible, which is always optimal; between types, every split is an option. With exact
/// consistency, returns only options that repeat the current plan's stages.
std::vector<StageOption> stage_options(const Problem& problem, Evaluator& evaluator,
                                       const Islands& gpus);

/// Builds the stage of `option` with `layers` layers, and takes its GPUs out of `left`. `gpus`: as
/// passed to stage_options(); `left` has its islands in the same order.
plan::StageLayout build_stage(const StageOption& option, int layers, Islands& left,
                              const Islands& gpus);

}  // namespace swell::planner
