// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "control/messages.h"

/// The names of --output and --error over all allocations of a run. Slurm numbers jobs, nodes and
/// tasks anew in each companion, where %t, %n and %j would name files that other workers write.
namespace swell::launcher {

/// Values that replace the specifiers in names for the job itself; empty: Slurm did not say.
struct RunNames {
  control::JobId job = 0;
  std::string array_job, array_task;
  int workers = 0;  ///< on the job's own GPUs
  std::string job_name, user;
};

/// Returns the name for a step on a companion: with the job's own numbers, and with task and node
/// numbers that no other allocation of the run has. `node`: WorkerNode::id, which is never reused;
/// `workers`: the number of the step's workers.
std::string companion_output(std::string_view name, const RunNames& run, int node, int workers);

/// Returns whether steps of several allocations may write one file of this name, so that each of
/// them must append to it: tasks and nodes have no files of their own. Numbers of steps begin anew
/// in each companion.
bool may_share_output(std::string_view name);

/// Returns the file of such a name; nullopt if it is not known before a step begins (%s, %J, and %a
/// outside of an array), if tasks or nodes have files of their own, or if there is no file.
std::optional<std::string> shared_output(std::string_view name, const RunNames& run);

/// Returns whether srun appends to an existing file: by `mode`, the value of --open-mode or empty,
/// and `site_appends`, JobFileAppend.
bool appends(std::string_view mode, bool site_appends);

}  // namespace swell::launcher
