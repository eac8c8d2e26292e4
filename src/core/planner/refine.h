// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/evaluator.h"
#include "core/planner/expand.h"

namespace swell::planner {

/// A finished plan and the GPUs that it leaves idle.
struct Solution {
  plan::Layout layout;
  Islands idle;
  double seconds = 0;  ///< iteration time
  std::string why;     ///< how it was found, for ScaleRow::why
};

/// Improves `found` by the best of small changes of its skeleton, repeated at most `rounds` times;
/// so it can undo what expanding step by step cannot. A stage gets another TP degree or all idle
/// GPUs, loses the groups of one node and type, is dropped, split, merged or exchanged with
/// another; groups move between stages; a layer moves. `deep`: where no change is better, the best
/// of the worse ones are refined further for two rounds. Not for exact consistency.
void refine(Solution& found, Evaluator& evaluator, const Degrees& degrees, int rounds,
            bool deep = false);

}  // namespace swell::planner
