// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/scale_tables.h"
#include "core/policy/parameters.h"
#include "core/policy/policy.h"
#include "core/policy/submissions.h"

namespace swell::policy {

/// FlexTrain's scaling controller (section 5). Thread-safe: caches only scale tables.
/// - It lends nothing while any job that needs GPUs is pending.
/// - The job with the fewest GPUs comes first, and gets the idle size of highest throughput in its
///   scale table, up to its maximum. Rows of the table are left out by the rules of section 4.4.4
///   (planner::RowFilter), by default by rule 3 alone.
/// - It lends only if idle GPUs are likely to stay idle until the change of plan has paid (eq. 16):
///   see ArrivalFilter.
/// - A pending job that cannot start gets GPUs back from the jobs that gained most by them. Nothing
///   is reclaimed if all lent GPUs would not suffice, and no companion beyond those needed; a job
///   that keeps some runs its best plan on them (section 5.2).
/// Not in the paper: a job without a profile is assumed to scale linearly, and is lent GPUs worker
/// by worker if that would pay; GPUs owed to jobs that consented to fewer (min=) are lent first,
/// even if jobs are pending, since these are basic demand.
class FlexTrain final : public Policy {
 public:
  struct Options {
    double chance = ArrivalFilter{}.chance;           ///< ScaleUpChance
    double window_s = ArrivalFilter{}.window_s;       ///< ArrivalWindow
    double arrival_gpus = ArrivalFilter{}.gpus;       ///< ArrivalGPUs
    double level = 0, apart = 0, significant = 0.05;  ///< see planner::RowFilter
    int queue_depth = kQueueDepth;                    ///< pending jobs considered, from the head
    double min_growth = 0.1;                  ///< for jobs without a profile; see FewestFirst
    std::function<planner::Budget()> budget;  ///< see PolicyOptions
    planner::RowFilter row_filter() const noexcept { return {level, apart, significant}; }
  };
  /// Parameters that `swell sim --set` accepts.
  static constexpr std::array<Parameter<Options>, 7> kParameters = {
      {{"chance", &Options::chance, 0, 1},
       {"window", &Options::window_s, 60, 7 * 86400},
       {"arrival-gpus", &Options::arrival_gpus, 1},
       {"level", &Options::level, 0, 1},
       {"apart", &Options::apart, 0, 100},
       {"significant", &Options::significant, 0, 1},
       {"min-growth", &Options::min_growth}}};
  FlexTrain() : FlexTrain(Options{}) {}
  explicit FlexTrain(Options options);
  Decisions decide(const ClusterView& view) const override;
  planner::RowFilter row_filter() const noexcept override { return options_.row_filter(); }

 private:
  Options options_;
  ScaleTables tables_;
};

}  // namespace swell::policy
