// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <string>

#include "core/planner/island.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// One way to use new GPUs: an unbalanced skeleton, the GPUs that it leaves idle, and a description
/// of the change. A visitor may move the members out.
struct Candidate {
  plan::Layout layout;
  Islands idle;
  enum class Kind { pp, dp, tp, moved } kind = Kind::pp;
  int stage = 0;  ///< the new or changed stage
  /// Returns the change in words, for ScaleRow::why, of a model with CP degree `cp`.
  std::string story(int cp = 1) const;
};

using Visit = std::function<void(Candidate&&)>;

/// Visits the candidates of 3D-Expand (Algorithm 1, lines 16 to 19). `more` becomes a new first or
/// last stage with each TP degree (PP-Expand), or joins each stage as further groups (DP-Expand),
/// or joins a stage that changes its TP degree (TP-Expand). With exact consistency, visits only new
/// stages with the DP and TP degree of the others.
void expand(const plan::Layout& from, const Islands& more, const Degrees& degrees,
            Consistency consistency, const Visit& visit);

/// Returns whether all stages have one DP degree, one TP degree and the same local batches. Under
/// exact consistency, layers may move between stages only then.
bool is_uniform(const plan::Layout& layout) noexcept;

}  // namespace swell::planner
