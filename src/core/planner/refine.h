// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/evaluator.h"
#include "core/planner/expand.h"

namespace swell::planner {

/// A finished plan with what it leaves idle.
struct Found {
  plan::Layout layout;
  Clumps idle;
  double seconds = 0;
  std::string why;
};

/// Improves `found` by the best of small changes of its skeleton, again and again, at most `rounds`
/// times: a stage's TP degree, groups moved from one stage to another, two neighbours merged, a
/// stage split, neighbours exchanged, a layer moved. What expanding step by step cannot undo.
/// Not for exact consistency.
void refine(Found& found, Evaluator& evaluator, const std::vector<int>& tp_degrees, int rounds);

}  // namespace swell::planner
