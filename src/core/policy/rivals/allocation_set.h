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
  Parallelism shape;      ///< of its plan; not of rigid jobs
  double throughput = 0;  ///< samples a second; of a job of which nothing is known, 1 for any type
};

/// `job`'s plan on `gpus`, which are as many as `configuration` has. No stages where it does not
/// fit there.
plan::Layout plan_on(const Contender& job, const planner::Clumps& gpus,
                     const Configuration& configuration, const ClusterView& view);

/// The configurations of `job`, by type and rising GPUs: Sia's valid set, a power of two of GPUs
/// within a node or whole nodes, so far as the job's PP x TP cell divides it and more GPUs are
/// faster; and the number of GPUs that the user asked for, which need not be of that set. A rigid
/// job has that alone.
std::vector<Configuration> configurations(const Contender& job, const ClusterView& view,
                                          const GpuPool& pool, CurveCache& curves);

/// What one job shall run with: its first choice and, for when there is no place for that, smaller
/// ones. None: nothing.
struct Wish {
  const Contender* job = nullptr;
  std::vector<Configuration> choices;
  bool keeps = false;  ///< the first choice is what it has: stays if it can
};

/// Places every wish (place_sizes()) and writes the plans of jobs that do not stay as they are.
void decide_plans(Decisions& decisions, const std::vector<Wish>& wishes, const GpuPool& pool,
                  const ClusterView& view);

}  // namespace swell::policy
