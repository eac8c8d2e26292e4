// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "launcher/options.h"
#include "launcher/seating.h"
#include "launcher/slurm_env.h"

namespace swell::launcher {

/// How the basic demand is cut into workers.
struct BasicWorkers {
  std::vector<WorkerNode> nodes;
  int workers = 0;
  int gpus = 0;
  int gpus_per_worker = 1;
  int cpus_per_worker = 1;
  bool shares_cpus = false;  ///< on some node there are fewer CPUs than workers
  std::int64_t memory_mib_per_worker = 0;
};

/// One worker a GPU, unless the options say otherwise; where a node has fewer CPUs than workers,
/// they share them. The error says why the command line does not describe an elastic run; srun may
/// still make sense of it.
Result<BasicWorkers> basic_workers(JobId job, const Options& options,
                                   const std::vector<NodeShare>& shares);

}  // namespace swell::launcher
