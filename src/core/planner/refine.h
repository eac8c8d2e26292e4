// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/evaluator.h"
#include "core/planner/expand.h"

namespace swell::planner {

/// A finished plan with what it leaves idle.
struct Solution {
  plan::Layout layout;
  Clumps idle;
  double seconds = 0;
  std::string why;
};

/// Improves `found` by the best of small changes of its skeleton, again and again, at most `rounds`
/// times: what expanding step by step cannot undo. A stage gets another TP degree or all idle GPUs,
/// loses the groups of one node and type, is dropped, split, merged with another, or exchanged
/// with it; groups move from one stage to another; a layer moves. `deep`: where no change is
/// better, the best of those that are not are followed for two more. Not for exact consistency.
void refine(Solution& found, Evaluator& evaluator, const Degrees& degrees, int rounds,
            bool deep = false);

}  // namespace swell::planner
