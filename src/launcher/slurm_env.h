// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "control/messages.h"
#include "control/socket.h"
#include "control/tag.h"
#include "core/result.h"

/// Reads the output of Slurm's commands. Nothing here runs them.
namespace swell::launcher {

/// Facts from `scontrol show config`: how a controller is found and trusted.
struct SlurmConfig {
  std::string munge_socket;              ///< empty: munge's default
  std::vector<std::string> controllers;  ///< addresses, the primary first
  uid_t slurm_user = 0;
  std::string conf_file;
  std::optional<std::time_t> slurmctld_since;  ///< start of the slurmctld that answers
  control::PortRange srun_ports;               ///< SrunPortRange; 0 to 0: any
  bool appends_output = false;                 ///< JobFileAppend
};
Result<SlurmConfig> read_config(std::string_view text);

/// A job's share of one node.
struct NodeShare {
  std::string node;
  int cpus = 0;
  std::int64_t memory_mib = 0;
  int gpus = 0;
  std::string gpu_list;   ///< their indices: "0-3,6"
  std::string gpu_types;  ///< if they are of several types: "a100:1,v100:1"
};
/// Facts of a job as Slurm knows them, without texts that users chose: each word is Slurm's own.
struct JobFacts {
  std::string id;  ///< as commands take it: "30", "29_1" for a task of an array
  uid_t owner = 0;
  std::size_t nodes = 0;    ///< 0: not known
  std::string wanted_gpus;  ///< as Slurm writes it: "TresPerNode=gres:gpu:2"; empty: none
};
/// Returns a command that prints a line for the job; for an array's first id, one for each task.
std::vector<std::string> job_facts_command(control::JobId job);
std::optional<JobFacts> read_job_facts(std::string_view text, control::JobId job);

/// Returns a command that prints one text that the job's user chose, such as its name ("%j"), and
/// nothing else, so that no text can imitate another field. `id` as in JobFacts.
std::vector<std::string> job_text_command(const std::string& id, const char* field);
/// Returns a command that prints the job's AdminComment and nothing else.
std::vector<std::string> admin_comment_command(const std::string& id);

/// Texts of the user that scontrol prints above the job's nodes: their keys, in scontrol's order,
/// and values.
using UserTexts = std::vector<std::pair<std::string, std::string>>;
/// Reads `scontrol show job -d ID`, in Slurm's order of nodes. The text may show other jobs too:
/// asked for the first id of a job array, scontrol shows the whole array.
Result<std::vector<NodeShare>> read_job(std::string_view text, control::JobId job,
                                        const UserTexts& known);

/// Reads the job's tag of Swell in its AdminComment; nullopt if the job is not elastic.
std::optional<control::Tag> read_tag(std::string_view admin_comment);

/// Returns the environment of a command that must see neither the job it is called in nor the
/// user's settings of Slurm's commands: without SLURM_*, SALLOC_*, SQUEUE_* and so on and the SPANK
/// options; SLURM_CONF stays.
std::vector<std::string> outside_environment(const char* const* environment);
/// Returns the environment of a step on a companion: outside_environment(), and variables that say
/// how the job's steps run, such as SLURM_EXPORT_ENV and the options of SPANK plugins, but none
/// that describe the job's own allocation.
std::vector<std::string> companion_step_environment(const char* const* environment);
/// Returns the environment of a step of the job itself, without variables that would impose the
/// batch script's own task and GPU layout on it.
std::vector<std::string> step_environment(const char* const* environment);

}  // namespace swell::launcher
