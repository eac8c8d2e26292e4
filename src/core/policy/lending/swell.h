// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/scale_tables.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Swell's own: lends for the least mean completion time. Like marginal-benefit with these
/// differences, measured in docs/notebook/policy-notes.md:
/// - a job counts, not its GPUs, and what a job has already makes more worth less;
/// - who has trained for less long counts more, since half of all jobs are short;
/// - a job that is starting is lent GPUs at once, by the data sheets, before its first step;
/// - what helps others clearly more is reclaimed though no job waits for it;
/// - the number of micro-batches may fall, and sends between stages count (perf/sends.h);
/// - a change of plan must pay for its pause within the time that the job is likely to run on.
/// No threshold: what nobody uses better is lent whatever it brings. Thread-safe: remembers pure
/// results alone.
class Swell final : public Policy {
 public:
  struct Options {
    double aversion = 0.75;      ///< 0: the sum of speed-ups counts; 1: that of their logarithms
    double youth = 0.5;          ///< weight falls with this power of the time since the start
    double shortness = 1;        ///< the same with what is left to do, where that is known
    double min_horizon_s = 120;  ///< in which a change of plan has to pay
    double margin = 1.5;         ///< gain over loss where a companion changes hands
    double min_speedup = 1.1;    ///< of a whole change of plan
    int takers = 4;              ///< jobs at most that others give up GPUs for in one decision
    int queue_depth = 1000;      ///< pending jobs looked at, from the head
    double min_growth = 0.1;     ///< of jobs without a profile; see FewestFirst
  };
  Swell();
  explicit Swell(Options options);
  Decisions decide(const ClusterView& view) const override;
  SimulationTraits simulation_traits() const noexcept override {
    return {.lends_at_start = true, .sends = kSends};
  }

 private:
  static constexpr perf::Sends kSends = perf::Sends::counted;
  Options options_;
  ScaleTables tables_;
};

}  // namespace swell::policy
