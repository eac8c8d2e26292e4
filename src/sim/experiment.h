// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/metrics.h"
#include "sim/simulation.h"

namespace swell::sim {

/// Policies against each other on the same workloads.
struct Experiment {
  std::shared_ptr<const cluster::Cluster> cluster;
  std::optional<Trace> trace;  ///< none: `generator`'s, another for each seed
  Generator generator;
  /// Of a generated trace: GPU-time it asks for, of what there is while it arrives.
  double load = 0.8;
  WorkloadOptions workload;
  /// "fifo" and "sjf" lend nothing; others are policy::make_policy()'s.
  std::vector<std::string> policies;
  std::string base = "fifo";  ///< queue order under policies that lend
  bool backfill = true;
  bool fixed_decision_time = false;
  bool remaining_known = false;
  double prediction_error = 0;
  double failures_per_day = 0;
  double aggressiveness = -1;  ///< of policies that have this knob; below 0: their default
  int seeds = 1;
  int first_seed = 1;
  int threads = 1;
  /// Called from any thread, one at a time, after each simulation.
  std::function<void(int done, int all)> progress;
};

struct Results {
  std::vector<std::string> policies;
  std::vector<std::vector<Outcome>> outcomes;  ///< by policy, by seed
  std::vector<Outcome> fifo;                   ///< by seed: what every policy is compared with
  std::vector<Metrics> metrics;                ///< by policy
  std::vector<JobType> types;
  int jobs = 0;  ///< of the first seed
  double wall_s = 0;
};

/// Runs every policy on every seed, `threads` at a time. The same results in the same order however
/// many threads there are. The error is the first of the first seed's first policy.
Result<Results> run(const Experiment& experiment);

/// Checks the names before anything runs.
Result<void> check_policies(const std::vector<std::string>& names);

}  // namespace swell::sim
