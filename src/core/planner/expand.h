// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <string>

#include "core/planner/clump.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// One way to use new GPUs: a skeleton to be balanced, the GPUs it leaves idle, and its story.
/// A visitor may move the members out.
struct Candidate {
  plan::Layout layout;
  Clumps idle;
  enum class Kind { pp, dp, tp, moved } kind = Kind::pp;
  int stage = 0;  ///< the new or changed stage
  std::string story() const;
};

using Visit = std::function<void(Candidate&&)>;

/// The candidates of 3D-Expand (Algorithm 1, lines 16 to 19): `more` as a new first or last stage
/// for each TP degree (PP-Expand), joined to each stage as further groups (DP-Expand), or joined
/// while the stage changes its TP degree (TP-Expand). With exact consistency, only new stages that
/// copy the others' DP and TP degree.
void expand(const plan::Layout& from, const Clumps& more, const Degrees& degrees,
            Consistency consistency, const Visit& visit);

/// Whether all stages have one DP degree, one TP degree and the same local batches, without which
/// no layer may move between stages under exact consistency.
bool is_uniform(const plan::Layout& layout) noexcept;

}  // namespace swell::planner
