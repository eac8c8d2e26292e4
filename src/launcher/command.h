// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "control/messages.h"
#include "launcher/options.h"
#include "launcher/output_names.h"
#include "launcher/rank_assignment.h"

/// The command lines of Slurm's programs that the agent runs.
namespace swell::launcher {

using Command = std::vector<std::string>;

/// Data that a step's shims need.
struct ShimAddress {
  std::string program;  ///< swell-worker's path
  std::string host;
  int port = 0;
  std::string munge_socket;
  bool gives_input = false;         ///< swellrun's standard input goes to every step: InputPlan
  bool live = false;                ///< the job is one of live mode
  std::vector<std::string> loader;  ///< what runs `program` in a container: ContainerShim
};

/// The srun commands that start the shims of one allocation, one for all nodes with equally many
/// workers: srun gives every node of a step as many GPUs.
/// `shares_cpus`: the allocation may have fewer CPUs than workers. `job` is another one than that
/// of `run`: a companion.
std::vector<Command> step_commands(const Options& options, JobId job, const RunNames& run,
                                   const std::vector<WorkerNode>& nodes, int cpus_per_worker,
                                   bool shares_cpus, const ShimAddress& shim);

/// srun with the resources of such a command that runs `true`, or fails at once where they are not
/// free.
Command probe_of(const Command& step, const ShimAddress& shim);

/// Creates exactly the companion that was offered; `restart_signal` is what Slurm shall warn with.
Command salloc_command(const control::Offer& offer, int restart_signal);

/// Cancels a companion by the name of its offer too, and so no other job that has got its id:
/// slurmctld gives ids again that it had given just before it was killed.
Command cancel_command(const std::string& name, JobId companion);

/// The job id in what salloc says; 0 where there is none.
JobId granted_job(const std::string& salloc_output);
/// salloc's words without its name, in one line.
std::string refusal(const std::string& salloc_output);

}  // namespace swell::launcher
