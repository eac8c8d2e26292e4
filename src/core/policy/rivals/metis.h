// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/planner/solver.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// The Metis planner as Suika's evaluation runs it (section 5.1, footnote 7): one search for every
/// number of GPUs, all at a time, each within a budget; what is not found by then is not
/// considered. The budget is a count, so that equal problems give equal tables: in 60 s, Suika's
/// Metis plans LLaMA2-13B on up to 40 GPUs and no more (Fig. 13a), for which this search looks at
/// 300,000 plans.
class TimedMetis final : public planner::Solver {
 public:
  static constexpr double kBudget_s = 60;
  static constexpr double kPlans_per_s = 5000;
  /// `max_free`: as Incremental::Options. The table's `evaluated` is of the longest search; it is
  /// not complete where one was given up.
  explicit TimedMetis(int max_free) : max_free_(max_free) {}
  planner::ScaleTable solve(const planner::Problem& problem,
                            const planner::Budget& budget) const override;

 private:
  int max_free_;
};

/// Marginal-benefit with Metis for a planner, and the time that this takes (Suika 5.1, footnote 7).
std::unique_ptr<Policy> make_metis(double aggressiveness);

}  // namespace swell::policy
