// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/slurm_env.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fmt/format.h>
#include <optional>

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

/// Of "2026-11-20T16:02:51", as Slurm writes times unless SLURM_TIME_FORMAT says otherwise.
std::optional<std::time_t> local_time(std::string_view text) {
  std::tm time{};
  const std::string terminated(text);
  const char* end = strptime(terminated.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

/// The value of " Key=value" in a line of scontrol's output; empty where it is not there.
std::string_view word(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1))
    if (at == 0 || line[at - 1] == ' ') {
      const std::string_view rest = line.substr(at + key.size());
      return rest.substr(0, rest.find(' '));
    }
  return {};
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
    }
  });
  if (config.controllers.empty() || !user_found)
    return Error("`scontrol show config` names no SlurmctldHost or no SlurmUser");
  return config;
}

Result<std::vector<NodeShare>> read_job(std::string_view text, control::JobId job) {
  std::vector<NodeShare> shares;
  bool other = true;
  std::optional<Error> bad;
  each_line(text, [&](std::string_view line) {
    if (line.starts_with("JobId=")) other = number(word(line, "JobId=")) != job;
    if (other) return;
    const std::string_view nodes = word(line, "Nodes="), cpus = word(line, "CPU_IDs=");
    if (nodes.empty() || cpus.empty()) return;
    NodeShare share;
    share.cpus = slurm_text::count_indices(cpus);
    share.memory_mib = number(word(line, "Mem="));
    for (const slurm_text::GpuRequest& gpus : slurm_text::parse_gpus(word(line, "GRES="))) {
      const int there = slurm_text::count_indices(gpus.indices);
      if (there == 0) continue;
      share.gpus += there;
      share.gpu_list += (share.gpu_list.empty() ? "" : ",") + gpus.indices;
    }
    auto names = slurm_text::expand_hostlist(nodes);
    if (!names) {
      bad = names.error();
      return;
    }
    for (std::string& node : *names) {
      share.node = std::move(node);
      shares.push_back(share);
    }
  });
  if (bad) return bad->while_doing(fmt::format("`scontrol show job -d {}`", job));
  if (shares.empty())
    return Error(fmt::format("`scontrol show job -d {}` names no nodes with CPUs", job));
  return shares;
}

std::optional<uid_t> read_owner(std::string_view text, control::JobId job) {
  std::optional<uid_t> owner;
  bool other = true;
  each_line(text, [&](std::string_view line) {
    if (line.starts_with("JobId=")) other = number(word(line, "JobId=")) != job;
    if (other || owner) return;
    const std::string_view user = word(line, "UserId=");  // name(number)
    const auto open = user.find('(');
    if (open != std::string_view::npos) owner = static_cast<uid_t>(number(user.substr(open + 1)));
  });
  return owner;
}

std::string read_wanted_gpus(std::string_view text, control::JobId job) {
  std::string wanted;
  bool other = true;
  each_line(text, [&](std::string_view line) {
    if (line.starts_with("JobId=")) other = number(word(line, "JobId=")) != job;
    if (other || !wanted.empty()) return;
    for (const char* key : {"TresPerJob=", "TresPerNode=", "TresPerSocket=", "TresPerTask="})
      if (const auto value = word(line, key); value.find("gpu") != std::string_view::npos) {
        wanted = key + std::string(value);
        return;
      }
  });
  return wanted;
}

std::optional<control::Tag> read_tag(std::string_view text, control::JobId job) {
  std::optional<control::Tag> tag;
  bool other = true;
  each_line(text, [&](std::string_view line) {
    if (line.starts_with("JobId=")) other = number(word(line, "JobId=")) != job;
    if (!other && trimmed(line).starts_with("AdminComment=")) tag = control::Tag::find(line);
  });
  return tag && !tag->get("elastic").empty() ? tag : std::nullopt;
}

std::vector<std::string> outside_environment(const char* const* environment) {
  std::vector<std::string> kept;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    bool drop = false;
    for (const std::string_view prefix :
         {"SLURM_", "SALLOC_", "SBATCH_", "SRUN_", "SPANK_", "_SLURM_SPANK_", "SLURMD_"})
      drop = drop || variable.starts_with(prefix);
    // What the batch script may see of GPUs is not what another allocation has.
    for (const std::string_view prefix : {"CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=",
                                          "GPU_DEVICE_ORDINAL=", "ZE_AFFINITY_MASK="})
      drop = drop || variable.starts_with(prefix);
    if (!drop || variable.starts_with("SLURM_CONF=")) kept.emplace_back(variable);
  }
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
