// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "control/messages.h"
#include "control/tag.h"
#include "core/result.h"

/// What Slurm's commands print, read. Nothing here runs them.
namespace swell::launcher {

/// Of `scontrol show config`: how a controller is found and trusted.
struct SlurmConfig {
  std::string munge_socket;              ///< empty: munge's default
  std::vector<std::string> controllers;  ///< addresses, the primary first
  uid_t slurm_user = 0;
  std::string conf_file;
  std::optional<std::time_t> slurmctld_since;  ///< when the one that answers was started
};
Result<SlurmConfig> read_config(std::string_view text);

/// What a job has on one node.
struct NodeShare {
  std::string node;
  int cpus = 0;
  std::int64_t memory_mib = 0;
  int gpus = 0;
  std::string gpu_list;  ///< their indices: "0-3,6"
};
/// Of `scontrol show job -d ID`, in Slurm's order of nodes. The text may show other jobs too: asked
/// for the first id of a job array, scontrol shows the whole array.
Result<std::vector<NodeShare>> read_job(std::string_view text, control::JobId job);

/// Of the same text: whose job it is; nothing where it does not say.
std::optional<uid_t> read_owner(std::string_view text, control::JobId job);

/// Of the same text: the GPUs that the job asked for, as Slurm writes it, such as
/// "TresPerNode=gres:gpu:2"; empty: none.
std::string read_wanted_gpus(std::string_view text, control::JobId job);

/// Of the same text: what Swell says of the job in its AdminComment; nothing where the job is not
/// elastic.
std::optional<control::Tag> read_tag(std::string_view text, control::JobId job);

/// The environment of a command that must not see the job it is called in: all but SLURM_*,
/// SALLOC_*, SBATCH_*, SRUN_* and the SPANK options; SLURM_CONF stays.
std::vector<std::string> outside_environment(const char* const* environment);
/// The environment of a step of the job itself: without what the batch script's own task and GPU
/// layout would impose on it.
std::vector<std::string> step_environment(const char* const* environment);

}  // namespace swell::launcher
