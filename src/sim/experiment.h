// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/policy/trust.h"
#include "sim/consent.h"
#include "sim/explain.h"
#include "sim/metrics.h"
#include "sim/settings.h"
#include "sim/simulation.h"

namespace swell::sim {

/// Settings of a comparison of policies on the same workloads.
struct Experiment {
  std::shared_ptr<const cluster::Cluster> cluster;
  std::optional<Trace> trace;  ///< none: made by `generator`, another one for each seed
  Generator generator;
  /// GPU-time that a generated trace asks for, over the cluster's GPU-time while jobs arrive.
  double load = 0.8;
  WorkloadOptions workload;
  /// Names of policies: "fifo" and "sjf" lend nothing; others are those of
  /// policy::make_simulated_policy().
  std::vector<std::string> policies;
  std::string base = "fifo";  ///< queue order under policies that lend
  bool backfill = true;
  bool fixed_decision_time = false;
  double remaining_known = 0;            ///< Setup::remaining_known
  Profiles profiles = Profiles::before;  ///< Setup::profiles
  double prediction_error = 0;
  Reporting reporting;                                  ///< Setup::reporting
  double max_shortfall = policy::Trust::kMaxShortfall;  ///< Setup::max_shortfall
  double failures_per_day = 0;
  /// As --elastic's max=Fx; 0: no max=, so that planned jobs have no limit.
  double max_factor = 0;
  std::optional<Clocks> clocks = Clocks{};         ///< Setup::clocks
  std::optional<redeploy::Measured> redeployment;  ///< Setup::redeployment
  bool rivals_as_measured = false;                 ///< Setup::rivals_as_measured
  double aggressiveness = -1;  ///< policies' option of that name; below 0: their default
  double fairness = 0;         ///< policies' option of that name
  Settings settings;           ///< of single policies, in the place of the above
  double launch_floor_s = 0;   ///< JobTypeOptions::launch_floor_s
  double least_share = 0.5;    ///< JobTypeOptions::least_share, where any job consents
  bool leave_out_large = false;
  bool explain = false;  ///< fills Results::explanations
  int seeds = 1;
  int first_seed = 1;
  int threads = 1;
  /// Called after each simulation, from any thread, but never from two at the same time.
  std::function<void(int done, int all)> progress;
};

struct Results {
  std::vector<std::string> policies;
  std::vector<std::vector<Outcome>> outcomes;  ///< by policy, by seed
  std::vector<Outcome> fifo;     ///< by seed: the outcome that every policy is compared with
  std::vector<Metrics> metrics;  ///< by policy
  /// By policy: its completion times over swell's; empty where swell is not among them.
  std::vector<PairedRatios> to_swell;
  /// By policy: what consent costs under it; none where it does not honour consent or nobody gives
  /// it.
  std::vector<std::optional<ConsentCost>> consent;
  std::vector<Explanation> explanations;  ///< by policy; empty unless Experiment::explain
  std::vector<JobType> types;
  Workload workload;  ///< of the first seed
  int jobs = 0;       ///< in the first seed
  /// With WorkloadOptions::own_gpus: jobs of the trace on whose number of GPUs no model has a plan,
  /// which are left out.
  int without_plan = 0;
  double wall_s = 0;
};

/// Runs every policy on every seed, those that honour consent also as if nobody consented,
/// `threads` simulations at a time; the number of threads does not change the results. The error is
/// the first by seed, then by policy.
Result<Results> run(const Experiment& experiment);

/// Whether all names are of known policies and all settings are theirs; the error names one that is
/// not.
Result<void> check_policies(const std::vector<std::string>& names, const Settings& settings = {});

}  // namespace swell::sim
