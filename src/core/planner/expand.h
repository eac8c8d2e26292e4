// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <string>

#include "core/planner/island.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// One way to use new GPUs: a skeleton to be balanced, the GPUs that it leaves idle, and what was
/// changed. A visitor may move the members out.
struct Candidate {
  plan::Layout layout;
  Islands idle;
  enum class Kind { pp, dp, tp, moved } kind = Kind::pp;
  int stage = 0;  ///< the new or changed stage
  /// The change in words, for ScaleRow::why, of a model with CP degree `cp`.
  std::string story(int cp = 1) const;
};

using Visit = std::function<void(Candidate&&)>;

/// Visits the candidates of 3D-Expand (Algorithm 1, lines 16 to 19): `more` as a new first or last
/// stage for each TP degree (PP-Expand), joined to each stage as further groups (DP-Expand), or
/// joined while the stage changes its TP degree (TP-Expand). With exact consistency, visits only
/// new stages that copy the others' DP and TP degree.
void expand(const plan::Layout& from, const Islands& more, const Degrees& degrees,
            Consistency consistency, const Visit& visit);

/// Whether all stages have one DP degree, one TP degree and the same local batches. Only then may
/// layers move between stages under exact consistency.
bool is_uniform(const plan::Layout& layout) noexcept;

}  // namespace swell::planner
