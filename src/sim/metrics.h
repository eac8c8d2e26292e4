// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/json.h"
#include "sim/outcome.h"

namespace swell::sim {

/// A mean over seeds, and half the width of its 95 % confidence interval (Student's t; 0 for one
/// seed).
struct Estimate {
  double mean = 0;
  double ci95 = 0;
};
Estimate estimate(const std::vector<double>& values);

/// The value below which the share `q` of the values lies; 0 for none.
double quantile(std::vector<double> values, double q);

/// What is reported of a policy. Times in seconds.
struct Metrics {
  Estimate avg_jct_s, avg_wjct_s;  ///< the latter weighted by basic GPUs (Suika, 5.1)
  Estimate p50_jct_s, p99_jct_s, makespan_s;
  Estimate gpu_utilization;  ///< allocated GPU-time over all GPU-time until the last job's end
  Estimate avg_queue_s, avg_queue_rigid_s;
  Estimate max_delay_vs_fifo_s;  ///< most that any job ends later than without elasticity
  Estimate reconfigurations, lost_gpu_s, prediction_error;
  double decision_p50_s = 0, decision_p90_s = 0, decision_p99_s = 0,
         decision_max_s = 0;  ///< over all seeds
  int decisions = 0;
};

/// `outcomes`, `fifo`: by seed; the latter's are those of the plain base scheduler with
/// first-in-first-out.
Metrics measure(const std::vector<const Outcome*>& outcomes,
                const std::vector<const Outcome*>& fifo);

Json to_json(const Metrics& metrics, bool with_decision_times);

}  // namespace swell::sim
