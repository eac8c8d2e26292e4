// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/rivals/contender.h"
#include "core/policy/rivals/gpu_pool.h"
#include "core/policy/rivals/scaling_curve.h"

namespace swell::policy {

/// One way to run a job: Sia's configuration (n nodes, r GPUs, GPU type), and how fast it is there.
struct Configuration {
  int type = 0;
  int gpus = 0;
  int nodes = 1;
  Shape shape;            ///< of its plan; not of rigid jobs
  double throughput = 0;  ///< samples a second; of a job of which nothing is known, 1 for any type
};

/// `job`'s plan on `gpus`, which are as many as `configuration` has. No stages where it does not fit there.
plan::Layout plan_on(const Contender& job, const planner::Clumps& gpus, const Configuration& configuration, const ClusterView& view);

/// The configurations of `job`, by type and rising GPUs: Sia's valid set, a power of two of GPUs
/// within a node or whole nodes, so far as the job's PP x TP cell divides it and more GPUs are faster;
/// and the number of GPUs that the user asked for, which need not be of that set. A rigid job has that alone.
std::vector<Configuration> configurations(const Contender& job, const ClusterView& view, const GpuPool& pool, CurveCache& curves);

}  // namespace swell::policy
