// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/rivals/contender.h"
#include "core/policy/rivals/gpu_pool.h"
#include "core/policy/rivals/scaling_curve.h"

namespace swell::policy {

/// One way to run a job: Sia's configuration (n nodes, r GPUs, GPU type), and its throughput.
struct Configuration {
  int type = 0;
  int gpus = 0;
  int nodes = 1;
  perf::Combination degrees;  ///< degrees of its plan; unused for rigid jobs
  /// Samples a second; 1 on any type for a job whose training is not known.
  double throughput = 0;
};

/// Returns the plan of `job` on `gpus`, which are as many as `configuration` has; no stages if it
/// does not fit there.
plan::Layout plan_on(const Contender& job, const planner::Islands& gpus,
                     const Configuration& configuration, const ClusterView& view);

/// Returns the configurations of `job`, by type and rising GPUs: Sia's valid set (a power of two of
/// GPUs within a node, or whole nodes) that the job's PP x TP cell divides and where more GPUs are
/// faster; and the number of GPUs that the user asked for, which need not be in that set. A rigid
/// job has only that one.
std::vector<Configuration> configurations(const Contender& job, const ClusterView& view,
                                          const GpuPool& pool, CurveCache& curves);

/// Configurations that one job may get: the first or, if there is no room for it, a smaller one.
/// Without any, the job gets nothing.
struct Request {
  const Contender* job = nullptr;
  std::vector<Configuration> choices;
  bool keeps = false;  ///< the first choice is what the job has: stays there if possible
};

/// Places every request (place_sizes()) and writes the plans of jobs whose GPUs change.
void decide_plans(Decisions& decisions, const std::vector<Request>& requests, const GpuPool& pool,
                  const ClusterView& view);

}  // namespace swell::policy
