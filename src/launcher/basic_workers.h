// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "launcher/options.h"
#include "launcher/rank_assignment.h"
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
  int gpus_of_job = 0;    ///< including GPUs that no worker uses
  std::string no_growth;  ///< why the job cannot grow with these workers; empty: it can
};

/// Returns one worker per GPU unless the options say otherwise. Workers share CPUs if a node has
/// too few. Workers that use only a part of the job, or share its GPUs unevenly, run but cannot
/// grow. The error says what the options ask for and the job does not have, which srun refuses.
Result<BasicWorkers> basic_workers(JobId job, const Options& options,
                                   const std::vector<NodeShare>& shares);

}  // namespace swell::launcher
