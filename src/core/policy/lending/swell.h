// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/executor.h"
#include "core/policy/lending/scale_tables.h"
#include "core/policy/objective.h"
#include "core/policy/parameters.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Swell's own policy: lends for the minimum mean completion time, or for another objective
/// (objective.h). For mean completion time it differs from marginal-benefit as follows (measured in
/// docs/notebook/policy-notes.md):
/// - jobs count equally, whatever their GPUs, and a further speed-up of a job counts less the
///   larger its speed-up is;
/// - a job that has trained for less time counts more, since half of all jobs are short;
/// - a starting job is lent GPUs at once, by the data sheets, before its first step;
/// - a companion that helps another job clearly more is reclaimed even if no job is pending;
/// - the number of micro-batches may fall, and sends between stages count (perf/sends.h);
/// - measured speeds count in place of predicted ones, and if predictions are far off, few plans
///   are compared (belief.h);
/// - a job is told a better plan for the GPUs that it has, lent ones among them;
/// - a change of plan must make up for its pause within the time that the job is likely to run on;
/// - a job that consented to fewer GPUs is owed those that it wanted (ElasticJobView::wanted_gpus):
///   if it can be planned for, it gets them before anything else is lent, in the order of starts,
///   takes them from what is lent to others, and loses them only to pending jobs;
/// - then, likewise, a job with a deadline is owed the fewest GPUs that keep it (deadlines.h).
/// There is no threshold: GPUs that no job uses better are lent whatever they bring.
/// Thread-safe. The number of plans made in one decision is limited; those left are made in later
/// decisions, so decisions depend on earlier ones.
class Swell final : public Policy {
 public:
  struct Options {
    Objective objective = Objective::completion;
    /// Weight of equality. 0: the sum of speed-ups counts; 1: the sum of their logarithms.
    double aversion = 0.5;
    double youth = 0.25;   ///< exponent by which weight falls with the time since the start
    double shortness = 1;  ///< exponent by which it falls with the time left, if all report it
    double min_horizon_s = 120;  ///< shortest time within which a change of plan has to pay
    double deadlines = 1;        ///< 0: ignores deadlines, whatever the objective
    double margin = 2;           ///< gain over loss needed to move a companion to another job
    double min_speedup = 1.1;    ///< speed-up needed for a change of plan
    double level = 0, apart = 0, significant = 0;  ///< see planner::RowFilter
    int takers = 4;  ///< limit of jobs in one decision for which others may lose companions
    int queue_depth = kQueueDepth;            ///< pending jobs considered, from the head
    double min_growth = 0.1;                  ///< for jobs without a profile; see FewestFirst
    std::shared_ptr<Executor> executor;       ///< see PolicyOptions
    std::function<planner::Budget()> budget;  ///< see PolicyOptions
    planner::RowFilter row_filter() const noexcept { return {level, apart, significant}; }
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 12> kParameters = {
      {{"objective", &Options::objective, 0, kObjectiveNames.size() - 1},
       {"aversion", &Options::aversion, 0, 10},
       {"youth", &Options::youth, 0, 10},
       {"shortness", &Options::shortness, 0, 10},
       {"min-horizon", &Options::min_horizon_s},
       {"margin", &Options::margin, 1},
       {"deadlines", &Options::deadlines, 0, 1},
       {"min-speedup", &Options::min_speedup, 1},
       {"level", &Options::level, 0, 1},
       {"apart", &Options::apart, 0, 100},
       {"significant", &Options::significant, 0, 1},
       {"min-growth", &Options::min_growth}}};
  Swell();
  explicit Swell(Options options);
  Decisions decide(const ClusterView& view) const override;
  planner::RowFilter row_filter() const noexcept override { return options_.row_filter(); }

 private:
  static constexpr perf::Sends kSends = perf::Sends::counted;
  Options options_;
  ScaleTables tables_;
  ScaleTables few_;  ///< of symmetric plans alone
};

}  // namespace swell::policy
