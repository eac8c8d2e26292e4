// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/planner/solver.h"
#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// The Metis planner as Suika's evaluation runs it (section 5.1, footnote 7): one search for every
/// number of GPUs, all in parallel, each within a budget; a plan not found by then is not
/// considered. The budget is a count, so that equal problems give equal tables. The published
/// speed: in 60 s Suika's Metis plans LLaMA2-13B on up to 40 GPUs (Fig. 13a), for which this search
/// evaluates 300,000 plans. The measured speed is that of this search on one core.
class TimedMetis final : public planner::Solver {
 public:
  static constexpr double kBudget_s = 60;
  static constexpr double kPublished_per_s = 5000;
  static constexpr double kMeasured_per_s = 285000;
  /// `max_free`: as Incremental::Options. The table's `evaluated` is that of the longest search;
  /// the table is not complete if a search ran out of its budget.
  explicit TimedMetis(int max_free, double plans_per_s = kPublished_per_s);
  planner::ScaleTable solve(const planner::Problem& problem,
                            const planner::Budget& budget) const override;

 private:
  int max_free_;
  long max_time_checks_;
};

/// Makes marginal-benefit with Metis for a planner, with the search time that this takes at
/// `plans_per_s` (Suika 5.1, footnote 7).
std::unique_ptr<SimulatedPolicy> make_metis(MarginalBenefit::Options options,
                                            double plans_per_s = TimedMetis::kPublished_per_s);

}  // namespace swell::policy
