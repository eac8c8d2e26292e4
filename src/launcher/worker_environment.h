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

/// swellrun's own SLURM_* variables: the job as its script sees it. Without those that describe one
/// task, one step or one node, which the worker's own Slurm knows, and those that describe the run,
/// which run_environment() gives.
/// Leaves out what does not fit a message, and what is not UTF-8; `left_out` gets its names.
Environment job_environment(const char* const* environment, std::size_t max_bytes,
                            std::vector<std::string>& left_out);

/// Whether a SLURM_* variable that Slurm gave to the worker's own task says something of that task,
/// its devices or its node. The others say what the allocation of this one worker is, and do not
/// reach the program.
bool is_of_the_task(std::string_view variable);

/// Facts that are the same for all workers of one generation.
struct RunFacts {
  JobId job = 0;
  std::vector<WorkerNode> nodes;  ///< at least those that have seats
  std::string master_address;
  int master_port = 0;
  std::optional<JobId> step;  ///< SLURM_STEP_ID of rank 0
  int gpus_per_worker = 1;
  bool tells_gpus = false;  ///< the job's own environment has SLURM_GPUS
  /// A program opens the GPUs of its own allocation alone: NCCL takes two allocations on one node
  /// for two hosts, and does not try what is between the GPUs of one.
  bool devices_apart = false;
  int restarts = 0, max_restarts = 0;  ///< after losses and failures, as torchrun counts
};

/// torchrun's environment of one seat, and what Slurm would say if the whole run were one step.
/// Groups stand for nodes. OMP_NUM_THREADS and TORCH_NCCL_ASYNC_ERROR_HANDLING as torchrun's are
/// there only where this process's own environment has none.
Environment run_environment(const RankAssignment& assignment, const Seat& seat,
                            const RunFacts& facts);

/// "node[1-3],login": as Slurm writes names, in their order.
std::string host_list(const std::vector<std::string>& names);
/// "2(x3),4": as Slurm writes counts a node.
std::string counts_text(const std::vector<int>& counts);

}  // namespace swell::launcher
