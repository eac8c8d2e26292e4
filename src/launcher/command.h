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
  bool live = false;                ///< the job runs in live mode
  std::vector<std::string> loader;  ///< command that runs `program` in a container: ContainerShim
};

/// Returns the srun commands that start the shims of one allocation. There is one command for all
/// nodes with the same number of workers, since srun gives each node of a step the same number of
/// GPUs. `job`: the allocation's job, a companion if it is not the job of `run`. `shares_cpus`: the
/// allocation may have fewer CPUs than workers.
std::vector<Command> step_commands(const Options& options, JobId job, const RunNames& run,
                                   const std::vector<WorkerNode>& nodes, int cpus_per_worker,
                                   bool shares_cpus, const ShimAddress& shim);

/// Returns an srun command with the resources of `step` that runs `true`, and fails at once if they
/// are not free.
Command probe_of(const Command& step, const ShimAddress& shim);

/// Returns an salloc that creates exactly the offered companion; Slurm warns by `restart_signal`.
Command salloc_command(const control::Offer& offer, int restart_signal);

/// Returns a scancel by the companion's id and its offer's name, so that no other job with this id
/// is cancelled: a slurmctld that was killed uses its last ids again.
Command cancel_command(const std::string& name, JobId companion);

/// Returns the job id in salloc's output; 0 if there is none.
JobId granted_job(const std::string& salloc_output);
/// Returns salloc's messages in one line, without the prefix "salloc: ".
std::string refusal(const std::string& salloc_output);

}  // namespace swell::launcher
