// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/worker_environment.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

#include "core/json.h"
#include "core/utf8.h"

namespace swell::launcher {

namespace {

constexpr std::string_view kSlurm = "SLURM_";
constexpr std::size_t kBesideName = 8;  // brackets, quotes and commas of a variable in a message

/// Prefixes, after SLURM_, of variables about one task, its devices or its node.
constexpr std::string_view kTask[] = {"CONF=",
                                      "LOCALID=",
                                      "TASK_PID=",
                                      "JOB_GPUS=",
                                      "STEP_GPUS=",
                                      "GPUS_ON_NODE=",
                                      "CPUS_ON_NODE=",
                                      "CPUS_PER_TASK=",
                                      "PRIO_PROCESS=",
                                      "UMASK=",
                                      "CPU_BIND",
                                      "MEM_BIND",
                                      "TOPOLOGY_ADDR",
                                      "SRUN_COMM_",
                                      "PMI",
                                      "MPI_TYPE=",
                                      "LAUNCH_NODE_IPADDR=",
                                      "STEP_LAUNCHER_PORT="};

/// Prefixes, after SLURM_, of variables that describe a step or its number of tasks. A nested srun
/// takes these for options.
constexpr std::string_view kStep[] = {
    "STEP",           "NTASKS",        "NPROCS=",         "PROCID=",
    "NODEID=",        "GTIDS=",        "TASKS_PER_NODE=", "NNODES=",
    "JOB_NUM_NODES=", "NODELIST=",     "JOB_NODELIST=",   "JOB_CPUS_PER_NODE",
    "GPUS",           "GPU_BIND=",     "TRES_",           "CPUS_PER_",
    "GRES=",          "DISTRIBUTION=", "HOSTFILE=",       "KILL_BAD_EXIT=",
    "WAIT=",          "MULTI_PROG=",   "EXACT=",          "SPREAD_JOB=",
    "OVERCOMMIT=",    "OVERLAP="};

template <std::size_t N>
bool begins_with_one(std::string_view text, const std::string_view (&beginnings)[N]) {
  return std::any_of(std::begin(beginnings), std::end(beginnings),
                     [text](std::string_view beginning) { return text.starts_with(beginning); });
}

/// Returns torchrun's defaults if nobody has said otherwise: an error of NCCL ends a worker, and
/// workers that share a node do not each start a thread for every core of it.
Environment torchrun_defaults(const Seat& seat) {
  Environment defaults;
  if (std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING") == nullptr)
    defaults.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (seat.local_world > 1 && std::getenv("OMP_NUM_THREADS") == nullptr)
    defaults.emplace_back("OMP_NUM_THREADS", "1");
  return defaults;
}

/// Returns the name by which NCCL tells the seat's allocation from another one on the same node;
/// empty: the job has one allocation there, or the user names hosts.
std::string nccl_host(const Seat& seat, const RunFacts& facts) {
  if (!facts.devices_apart || std::getenv("NCCL_HOSTID") != nullptr) return {};
  const auto own =
      std::find_if(facts.nodes.begin(), facts.nodes.end(),
                   [&](const WorkerNode& each) { return each.id == seat.worker.node; });
  if (own == facts.nodes.end()) return {};
  const bool shared = std::any_of(
      facts.nodes.begin(), facts.nodes.end(),
      [&](const WorkerNode& other) { return other.name == own->name && other.job != own->job; });
  return shared ? fmt::format("{}.{}", own->name, own->job) : std::string();
}

/// Splits a name such as "node07" into "node" and "07", its last digits. A name without digits is
/// never part of a range.
std::pair<std::string_view, std::string_view> parts(std::string_view name) {
  std::size_t begin = name.size();
  while (begin > 0 && name.size() - begin < 9 && name[begin - 1] >= '0' && name[begin - 1] <= '9')
    --begin;
  return {name.substr(0, begin), name.substr(begin)};
}

}  // namespace

Environment job_environment(const char* const* environment, std::size_t max_bytes,
                            std::vector<std::string>& left_out) {
  std::vector<std::pair<std::size_t, std::pair<std::string, std::string>>> found;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const auto equals = variable.find('=');
    if (!variable.starts_with(kSlurm) || equals == std::string_view::npos) continue;
    const std::string_view rest = variable.substr(kSlurm.size());
    if (begins_with_one(rest, kTask) || begins_with_one(rest, kStep)) continue;
    std::string name(variable.substr(0, equals)), value(variable.substr(equals + 1));
    // Messages are JSON, which holds UTF-8 alone.
    if (valid_utf8(name) == name && valid_utf8(value) == value)
      found.push_back({name.size() + Json(value).dump().size() + kBesideName,
                       {std::move(name), std::move(value)}});
    else left_out.push_back(std::move(name));
  }
  std::size_t total = 0;
  for (const auto& [bytes, variable] : found) total += bytes;
  // The largest variables are left out first; there may be tens of thousands.
  if (total > max_bytes)
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
  std::size_t gone = 0;
  for (; total > max_bytes; ++gone) {
    total -= found[gone].first;
    left_out.push_back(found[gone].second.first);
  }
  Environment kept;
  for (; gone < found.size(); ++gone) kept.push_back(std::move(found[gone].second));
  return kept;
}

bool is_of_the_task(std::string_view variable) {
  return variable.starts_with(kSlurm) && begins_with_one(variable.substr(kSlurm.size()), kTask);
}

Environment run_environment(const RankAssignment& assignment, const Seat& seat,
                            const RunFacts& facts) {
  const std::string world = std::to_string(assignment.seats.size()),
                    groups = std::to_string(assignment.groups);
  std::vector<std::string> nodes;
  std::vector<int> tasks, cpus;
  std::string own_ranks;
  for (const Seat& each : assignment.seats) {
    if (each.group == seat.group)
      own_ranks += fmt::format("{}{}", own_ranks.empty() ? "" : ",", each.rank);
    if (each.group < static_cast<int>(nodes.size())) continue;
    tasks.push_back(each.local_world);
    const auto its =
        std::find_if(facts.nodes.begin(), facts.nodes.end(),
                     [&](const WorkerNode& one) { return one.id == each.worker.node; });
    nodes.push_back(its != facts.nodes.end() ? its->name : "");
    cpus.push_back(its != facts.nodes.end() ? its->cpus : 0);
  }
  const std::string list = host_list(nodes), counts = counts_text(tasks);

  Environment environment =
      torch_environment(assignment, seat, facts.master_address, facts.master_port);
  const auto add = [&environment](const char* name, std::string value) {
    environment.emplace_back(name, std::move(value));
  };
  add("ROLE_NAME", "default");
  add("TORCHELASTIC_RUN_ID", std::to_string(facts.job));
  add("TORCHELASTIC_RESTART_COUNT", std::to_string(facts.restarts));
  add("TORCHELASTIC_MAX_RESTARTS", std::to_string(facts.max_restarts));
  add("TORCHELASTIC_USE_AGENT_STORE",
      "False");  // rank 0 has the store: no process lives longer than a generation
  for (auto& [name, value] : torchrun_defaults(seat)) add(name.c_str(), std::move(value));
  if (std::string host = nccl_host(seat, facts); !host.empty()) add("NCCL_HOSTID", std::move(host));
  add("SLURM_PROCID", std::to_string(seat.rank));
  add("SLURM_NODEID", std::to_string(seat.group));
  add("SLURM_GTIDS", own_ranks);
  for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"})
    add(name, world);
  for (const char* name : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"})
    add(name, groups);
  for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST"})
    add(name, list);
  for (const char* name : {"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"}) add(name, counts);
  if (std::find(cpus.begin(), cpus.end(), 0) == cpus.end())
    add("SLURM_JOB_CPUS_PER_NODE", counts_text(cpus));
  if (facts.tells_gpus)
    add("SLURM_GPUS", std::to_string(assignment.seats.size() *
                                     static_cast<std::size_t>(std::max(1, facts.gpus_per_worker))));
  if (facts.step)
    for (const char* name : {"SLURM_STEP_ID", "SLURM_STEPID"})
      add(name, std::to_string(*facts.step));
  return environment;
}

std::string host_list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size();) {
    // Names with the same prefix and the same number of digits are one item.
    const auto [prefix, digits] = parts(names[i]);
    std::size_t end = i + 1;
    while (!digits.empty() && end < names.size() && parts(names[end]).first == prefix &&
           parts(names[end]).second.size() == digits.size())
      ++end;
    text += text.empty() ? "" : ",";
    if (end == i + 1) {
      text += names[i];
    } else {
      text += std::string(prefix) + "[";
      for (std::size_t first = i; first < end;) {
        std::size_t last = first;
        while (last + 1 < end && std::stol(std::string(parts(names[last + 1]).second)) ==
                                     std::stol(std::string(parts(names[last]).second)) + 1)
          ++last;
        text += fmt::format("{}{}", first == i ? "" : ",", parts(names[first]).second);
        if (last > first) text += fmt::format("-{}", parts(names[last]).second);
        first = last + 1;
      }
      text += "]";
    }
    i = end;
  }
  return text;
}

std::string counts_text(const std::vector<int>& counts) {
  std::string text;
  for (std::size_t i = 0; i < counts.size();) {
    std::size_t end = i;
    while (end < counts.size() && counts[end] == counts[i]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", counts[i]);
    if (end - i > 1) text += fmt::format("(x{})", end - i);
    i = end;
  }
  return text;
}

}  // namespace swell::launcher
