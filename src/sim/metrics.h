// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/json.h"
#include "sim/outcome.h"

namespace swell::sim {

/// Mean over seeds and half the width of its 95 % confidence interval (Student's t; 0 for one
/// seed).
struct Estimate {
  double mean = 0;
  double ci95 = 0;
};
Estimate estimate(const std::vector<double>& values);

/// Geometric mean over seeds of a ratio, and its 95 % confidence interval (Student's t on the
/// logarithms; without width for one seed).
struct Ratio {
  double mean = 1, low = 1, high = 1;
};
Ratio ratio(const std::vector<double>& numerators, const std::vector<double>& denominators);

/// A policy's completion times over another's on the same seeds.
struct PairedRatios {
  Ratio jct, wjct;
};
/// `one`, `other`: outcomes by seed, of the same workloads.
PairedRatios paired_ratios(const std::vector<Outcome>& one, const std::vector<Outcome>& other);

/// The `q` quantile of the values; 0 where there are none.
double quantile(std::vector<double> values, double q);

/// Time from start to end over JobOutcome::basic_s up to which a job counts as not slowed down: a
/// slow node takes a tenth longer, which no policy is to blame for.
inline constexpr double kSlower = 1.1;

/// Reported figures of a policy. Times in seconds.
struct Metrics {
  Estimate avg_jct_s, avg_wjct_s;  ///< the latter weighted by basic GPUs (Suika, 5.1)
  Estimate p50_jct_s, p99_jct_s, makespan_s;
  Estimate gpu_utilization;  ///< allocated GPU-time over all GPU-time until the last job's end
  Estimate avg_queue_s, avg_queue_rigid_s;
  Estimate max_delay_vs_fifo_s;  ///< largest delay of any job against fifo without elasticity
  Estimate reconfigurations, lost_gpu_s, prediction_error;
  Estimate out_of_memory, migrations, given_back;  ///< see Outcome
  /// Jobs that took over kSlower times as long, from start to end, as on their basic demand.
  Estimate slower_than_basic;
  Estimate deadlines_kept;  ///< share of the jobs with a deadline; 0 where none has one
  /// Quantiles of the time that a decision takes, over all seeds.
  double decision_p50_s = 0, decision_p90_s = 0, decision_p99_s = 0, decision_max_s = 0;
  int decisions = 0;
};

/// Computes a policy's figures. `outcomes`, `fifo`: by seed; the latter are those of the plain base
/// scheduler with first-in-first-out.
Metrics measure(const std::vector<const Outcome*>& outcomes,
                const std::vector<const Outcome*>& fifo);

Json to_json(const Metrics& metrics, bool with_decision_times);
Json to_json(const PairedRatios& ratios);

}  // namespace swell::sim
