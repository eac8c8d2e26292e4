// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/slurm_env.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <sstream>

#include "core/number.h"
#include "core/slurm_text/gres.h"
#include "core/slurm_text/hostlist.h"
#include "core/slurm_text/lists.h"

namespace swell::launcher {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const auto first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

template <typename Function>
void each_line(std::string_view text, Function function) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    function(line);
  }
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Reads "2026-11-20T16:02:51", as Slurm writes times unless SLURM_TIME_FORMAT says otherwise.
std::optional<std::time_t> local_time(std::string_view text) {
  std::tm time{};
  const std::string terminated(text);
  const char* end = strptime(terminated.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

/// Returns the value of " Key=value" in a line of scontrol's output; empty if it is not there.
std::string_view word(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1))
    if (at == 0 || line[at - 1] == ' ') {
      const std::string_view rest = line.substr(at + key.size());
      return rest.substr(0, rest.find(' '));
    }
  return {};
}

/// Returns the text after the first line with " KEY=". If this has the value `value`, all of it is
/// skipped by length, since it may have line ends. nullopt: no line has the key.
std::optional<std::string_view> after_user_text(std::string_view text, std::string_view key,
                                                std::string_view value) {
  const auto at = text.find(fmt::format(" {}=", key));
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + key.size() + 2);
  const bool is_known = text.starts_with(value) && text.substr(value.size()).starts_with('\n');
  text.remove_prefix(is_known ? value.size() + 1 : std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

/// Returns the lines with a job's share of each node in `scontrol show job -d`. Between the job's
/// id and these lines stand only values of Slurm, and the user's texts in `known`, which are
/// skipped by their length: they may contain lines like these.
std::vector<std::string_view> node_lines(std::string_view text, control::JobId job,
                                         const UserTexts& known) {
  const std::string id = fmt::format("JobId={} ", job);
  while (!text.starts_with(id)) {
    const auto end = text.find("\n\nJobId=");
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 2);
  }
  const auto above = [](std::string_view part) { return part.substr(0, part.find("\n\nJobId=")); };
  for (const auto& [key, value] : known)
    if (const auto rest = after_user_text(text, key, value)) text = *rest;
  std::vector<std::string_view> lines;
  bool is_over = false;
  each_line(above(text), [&](std::string_view line) {
    const std::string_view content = trimmed(line);
    const bool is_one = content.starts_with("Nodes=") && !word(line, "CPU_IDs=").empty();
    is_over = is_over || content.starts_with("Command=") || (!is_one && !lines.empty());
    if (is_one && !is_over) lines.push_back(line);
  });
  return lines;
}

/// Returns whether a variable is read or set by Slurm's commands, or names the devices that the
/// batch script may see: another allocation has other devices.
bool is_of_slurm(std::string_view variable) {
  constexpr std::string_view beginnings[] = {"SLURM_",
                                             "SALLOC_",
                                             "SBATCH_",
                                             "SRUN_",
                                             "SPANK_",
                                             "_SLURM_SPANK_",
                                             "SLURMD_",
                                             "SCONTROL_",
                                             "SQUEUE_",
                                             "SINFO_",
                                             "SCANCEL_",
                                             "CUDA_VISIBLE_DEVICES=",
                                             "ROCR_VISIBLE_DEVICES=",
                                             "GPU_DEVICE_ORDINAL=",
                                             "ZE_AFFINITY_MASK="};
  return std::any_of(std::begin(beginnings), std::end(beginnings),
                     [&](std::string_view each) { return variable.starts_with(each); });
}

/// Returns whether a variable stands for an option that every step is given (srun_option.h), or for
/// an option of another SPANK plugin.
bool says_how_steps_run(std::string_view variable) {
  for (const std::string_view beginning :
       {"_SLURM_SPANK_OPTION_", "SLURM_SPANK_", "SPANK_", "SRUN_CONTAINER"})
    if (variable.starts_with(beginning)) return true;
  constexpr std::string_view names[] = {"SLURM_ACCTG_FREQ",
                                        "SLURM_CONTAINER",
                                        "SLURM_CPU_BIND",
                                        "SLURM_CPU_FREQ_REQ",
                                        "SLURM_DEBUG",
                                        "SLURM_DEBUG_FLAGS",
                                        "SLURM_DISABLE_STATUS",
                                        "SLURM_EPILOG",
                                        "SLURM_EXCLUSIVE",
                                        "SLURM_EXIT_ERROR",
                                        "SLURM_EXPORT_ENV",
                                        "SLURM_GPU_FREQ",
                                        "SLURM_HINT",
                                        "SLURM_JOB_NAME",
                                        "SLURM_LABELIO",
                                        "SLURM_MEM_BIND",
                                        "SLURM_MPI_TYPE",
                                        "SLURM_NETWORK",
                                        "SLURM_OPEN_MODE",
                                        "SLURM_OVERCOMMIT",
                                        "SLURM_OVERLAP",
                                        "SLURM_PMI_FANOUT",
                                        "SLURM_PMI_KVS_NO_DUP_KEYS",
                                        "SLURM_PROFILE",
                                        "SLURM_PROLOG",
                                        "SLURM_REMOTE_CWD",
                                        "SLURM_SRUN_REDUCE_TASK_EXIT_MSG",
                                        "SLURM_STDERRMODE",
                                        "SLURM_STDOUTMODE",
                                        "SLURM_TASK_EPILOG",
                                        "SLURM_TASK_PROLOG",
                                        "SLURM_THREADS",
                                        "SLURM_THREADS_PER_CORE",
                                        "SLURM_TIMELIMIT",
                                        "SLURM_UNBUFFEREDIO",
                                        "SLURM_WHOLE",
                                        "SLURM_WORKING_DIR",
                                        "SLURMD_DEBUG",
                                        "SRUN_EXPORT_ENV"};
  const std::string_view name = variable.substr(0, variable.find('='));
  if (std::find(std::begin(names), std::end(names), name) == std::end(names)) return false;
  // A list of CPUs holds only for the node that the script runs on.
  return !name.ends_with("_BIND") || (variable.find("map_") == std::string_view::npos &&
                                      variable.find("mask_") == std::string_view::npos);
}

}  // namespace

Result<SlurmConfig> read_config(std::string_view text) {
  SlurmConfig config;
  bool user_found = false;
  each_line(text, [&](std::string_view line) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) return;
    const std::string_view key = trimmed(line.substr(0, equals)),
                           value = trimmed(line.substr(equals + 1));
    if (key == "AuthInfo") {
      for (const std::string_view item : slurm_text::split_list(value))
        if (item.starts_with("socket=")) config.munge_socket = item.substr(7);
    } else if (key.starts_with("SlurmctldHost")) {
      // name(address), or the name alone
      const auto open = value.find('(');
      const bool address = open != std::string_view::npos && value.ends_with(')');
      config.controllers.emplace_back(address ? value.substr(open + 1, value.size() - open - 2)
                                              : value);
    } else if (key == "SlurmUser") {
      const auto open = value.find('(');
      if (open == std::string_view::npos) return;
      config.slurm_user = static_cast<uid_t>(number(value.substr(open + 1)));
      user_found = true;
    } else if (key == "SLURM_CONF") {
      config.conf_file = value;
    } else if (key == "BOOT_TIME") {
      config.slurmctld_since = local_time(value);
    } else if (key == "JobFileAppend") {
      config.appends_output = value == "1";
    } else if (key == "SrunPortRange") {
      const auto dash = value.find('-');
      const auto first = read_number<std::uint16_t>(value.substr(0, dash));
      const auto last =
          dash == value.npos ? std::nullopt : read_number<std::uint16_t>(value.substr(dash + 1));
      if (first && last && *first > 0 && *last >= *first) config.srun_ports = {*first, *last};
    }
  });
  if (config.controllers.empty() || !user_found)
    return Error("`scontrol show config` names no SlurmctldHost or no SlurmUser");
  return config;
}

// With POSIXLY_CORRECT Slurm's commands read no options after the first other word, such as the job
// in squeue -j JOB; so it is joined by '=' here.
std::vector<std::string> job_facts_command(control::JobId job) {
  return {"squeue",
          "--all",
          "-h",
          "--noconvert",  // else 1024 nodes are "1K"
          fmt::format("--jobs={}", job),
          "-O",
          "JobID:16,JobArrayID:64,UserID:16,NumNodes:16,tres-per-job:512,tres-per-node:512,"
          "tres-per-socket:512,tres-per-task:512"};
}

std::optional<JobFacts> read_job_facts(std::string_view text, control::JobId job) {
  std::optional<JobFacts> facts;
  each_line(text, [&](std::string_view line) {
    std::istringstream words{std::string(line)};
    std::string id, shown, user, nodes;
    if (!(words >> id >> shown >> user >> nodes) || facts || id != std::to_string(job)) return;
    const auto owner = read_whole<uid_t>(user);
    if (!owner) return;
    // A heterogeneous job, whose shown ids have a '+', is asked for by its number.
    facts = JobFacts{shown.find('_') != std::string::npos ? shown : id, *owner,
                     read_whole<std::size_t>(nodes).value_or(0), ""};
    for (const char* key : {"TresPerJob=", "TresPerNode=", "TresPerSocket=", "TresPerTask="})
      if (std::string value;
          words >> value && facts->wanted_gpus.empty() && value.find("gpu") != std::string::npos)
        facts->wanted_gpus = key + value;
  });
  return facts;
}

std::vector<std::string> job_text_command(const std::string& id, const char* field) {
  return {"squeue", "--all", "-h", "--jobs=" + id, "-o", field};
}

std::vector<std::string> admin_comment_command(const std::string& id) {
  return {"squeue", "--all", "-h", "--jobs=" + id, "-O", "admin_comment:16384"};
}

Result<std::vector<NodeShare>> read_job(std::string_view text, control::JobId job,
                                        const UserTexts& known) {
  std::vector<NodeShare> shares;
  for (const std::string_view line : node_lines(text, job, known)) {
    NodeShare share;
    share.cpus = slurm_text::count_indices(word(line, "CPU_IDs="));
    share.memory_mib = number(word(line, "Mem="));
    std::map<std::string, int> types;
    for (const slurm_text::GpuRequest& gpus : slurm_text::parse_gpus(word(line, "GRES="))) {
      const int there = slurm_text::count_indices(gpus.indices);
      if (there == 0) continue;
      share.gpus += there;
      share.gpu_list += (share.gpu_list.empty() ? "" : ",") + gpus.indices;
      types[gpus.type] += there;
    }
    if (types.size() > 1)
      for (const auto& [type, count] : types)
        share.gpu_types += fmt::format("{}{}{}{}", share.gpu_types.empty() ? "" : ",", type,
                                       type.empty() ? "" : ":", count);
    auto names = slurm_text::expand_hostlist(word(line, "Nodes="));
    if (!names) return names.error().while_doing(fmt::format("`scontrol show job -d {}`", job));
    for (std::string& node : *names) {
      share.node = std::move(node);
      shares.push_back(share);
    }
  }
  if (shares.empty())
    return Error(fmt::format("`scontrol show job -d {}` names no nodes with CPUs", job));
  return shares;
}

std::optional<control::Tag> read_tag(std::string_view admin_comment) {
  const auto tag = control::Tag::find(admin_comment);
  return tag && !tag->get("elastic").empty() ? tag : std::nullopt;
}

std::vector<std::string> outside_environment(const char* const* environment) {
  std::vector<std::string> kept;
  for (; *environment != nullptr; ++environment)
    if (const std::string_view variable = *environment;
        !is_of_slurm(variable) || variable.starts_with("SLURM_CONF="))
      kept.emplace_back(variable);
  return kept;
}

std::vector<std::string> companion_step_environment(const char* const* environment) {
  std::vector<std::string> kept = outside_environment(environment);
  for (; *environment != nullptr; ++environment)
    if (const std::string_view variable = *environment; says_how_steps_run(variable))
      kept.emplace_back(variable);
  return kept;
}

std::vector<std::string> step_environment(const char* const* environment) {
  constexpr std::string_view dropped[] = {"SLURM_NTASKS",
                                          "SLURM_NPROCS",
                                          "SLURM_NTASKS_PER_NODE",
                                          "SLURM_NTASKS_PER_SOCKET",
                                          "SLURM_NTASKS_PER_CORE",
                                          "SLURM_NTASKS_PER_GPU",
                                          "SLURM_NTASKS_PER_TRES",
                                          "SLURM_CPUS_PER_TASK",
                                          "SRUN_CPUS_PER_TASK",
                                          "SLURM_CPUS_PER_GPU",
                                          "SLURM_TRES_PER_TASK",
                                          "SLURM_GPUS",
                                          "SLURM_GPUS_PER_NODE",
                                          "SLURM_GPUS_PER_TASK",
                                          "SLURM_GPUS_PER_SOCKET",
                                          "SLURM_GPU_BIND",
                                          "SLURM_TRES_BIND",
                                          "SLURM_GRES",
                                          "SLURM_STEP_GRES",
                                          "SLURM_DISTRIBUTION",
                                          "SLURM_HOSTFILE",
                                          "SLURM_KILL_BAD_EXIT",
                                          "SLURM_WAIT",
                                          "SLURM_NNODES",
                                          "SLURM_MULTI_PROG",
                                          "SLURM_EXACT",
                                          "SLURM_SPREAD_JOB"};
  std::vector<std::string> kept;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (std::find(std::begin(dropped), std::end(dropped), name) == std::end(dropped))
      kept.emplace_back(variable);
  }
  return kept;
}

}  // namespace swell::launcher
