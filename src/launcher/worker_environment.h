// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/rank_assignment.h"

/// Environment of the workers of one run: the same everywhere, whichever allocation a worker runs
/// in.
namespace swell::launcher {

/// Returns swellrun's own SLURM_* variables, which describe the job as its script sees it. Those of
/// one task, step or node are left out, since the worker's own step sets them, and those of the
/// run, which run_environment() returns. Also leaves out variables that do not fit a message or are
/// not UTF-8; their names are added to `left_out`.
Environment job_environment(const char* const* environment, std::size_t max_bytes,
                            std::vector<std::string>& left_out);

/// Returns whether a SLURM_* variable of the worker's own task describes that task, its devices or
/// its node. The others describe the allocation of this one worker, and are not passed to the
/// program.
bool is_of_the_task(std::string_view variable);

/// Facts that are the same for all workers of one generation.
struct RunFacts {
  JobId job = 0;
  std::vector<WorkerNode> nodes;  ///< at least those with ranks of this generation
  std::string master_address;
  int master_port = 0;
  std::optional<JobId> step;  ///< SLURM_STEP_ID of rank 0
  int gpus_per_worker = 1;
  bool tells_gpus = false;  ///< the job's own environment has SLURM_GPUS
  /// A program can open only the GPUs of its own allocation. NCCL is then told that two allocations
  /// on one node are two hosts, so that it does not try direct links between their GPUs.
  bool devices_apart = false;
  int restarts = 0, max_restarts = 0;  ///< after losses and failures, as torchrun counts
};

/// Returns the environment of the rank of `seat`: torchrun's variables, and those that Slurm would
/// set if the whole run were one step, with groups in place of nodes. OMP_NUM_THREADS and
/// TORCH_NCCL_ASYNC_ERROR_HANDLING get torchrun's values only if this process's own environment
/// does not have them.
Environment run_environment(const RankAssignment& assignment, const Seat& seat,
                            const RunFacts& facts);

/// Returns the names as Slurm writes them, in their order: "node[1-3],login".
std::string host_list(const std::vector<std::string>& names);
/// Returns counts for each node as Slurm writes them: "2(x3),4".
std::string counts_text(const std::vector<int>& counts);

}  // namespace swell::launcher
