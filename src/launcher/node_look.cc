// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/node_look.h"

#include <fmt/format.h>
#include <map>
#include <sstream>

#include "core/number.h"
#include "core/slurm_text/gres.h"
#include "core/slurm_text/lists.h"

namespace swell::launcher {

namespace {

/// Begins each line that the step prints: a TaskProlog may print lines of its own.
constexpr const char* kMark = "swell-node";

/// Returns the numbers in "32(x2),16": 32, 32 and 16. Ends at the first word that is not a number.
std::vector<int> repeated(std::string_view text, std::size_t max) {
  std::vector<int> numbers;
  for (const std::string_view part : slurm_text::split_list(text)) {
    const auto open = part.find("(x");
    const auto number = read_whole<int>(part.substr(0, open));
    const auto times = open == part.npos
                           ? std::optional<std::size_t>(1)
                           : read_whole<std::size_t>(part.substr(open + 2, part.size() - open - 3));
    if (!number || !times || *times > max - numbers.size()) break;
    numbers.insert(numbers.end(), *times, *number);
  }
  return numbers;
}

/// Returns "a100:1,v100:1" if the job asked for these types on each node and got them; else "".
std::string types_of(std::string_view wanted_gpus, int gpus) {
  constexpr std::string_view per_node = "TresPerNode=";
  if (!wanted_gpus.starts_with(per_node)) return {};
  const auto wanted = slurm_text::parse_gpus(wanted_gpus.substr(per_node.size()));
  std::string types;
  int count = 0;
  for (const slurm_text::GpuRequest& one : wanted) {
    if (one.type.empty()) return {};
    types += fmt::format("{}{}:{}", types.empty() ? "" : ",", one.type, one.count);
    count += one.count;
  }
  return wanted.size() > 1 && count == gpus ? types : std::string();
}

}  // namespace

Command node_look_command(control::JobId job, std::size_t nodes) {
  return {"srun", "--quiet", "--overlap", fmt::format("--jobid={}", job),
          fmt::format("--nodes={}", nodes), fmt::format("--ntasks={}", nodes),
          "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=0", "--mpi=none", "--input=none",
          "--chdir=/", "--kill-on-bad-exit=1", "/bin/sh", "-c",
          // Slurm 22.05 gives the job's CPUs in the second variable.
          fmt::format("echo \"{} $SLURM_NODEID $SLURMD_NODENAME ${{SLURM_STEP_GPUS:-none}} "
                      "${{SLURM_JOB_CPUS_PER_NODE:-$SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0}}\"",
                      kMark)};
}

Result<std::vector<NodeShare>> read_node_look(std::string_view text, std::size_t nodes,
                                              std::string_view wanted_gpus) {
  std::map<std::size_t, NodeShare> found;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark, cpus;
    std::size_t index = 0;
    NodeShare share;
    if (!(words >> mark >> index >> share.node >> share.gpu_list >> cpus) || mark != kMark)
      continue;
    const std::vector<int> each = repeated(cpus, nodes);
    if (index >= each.size()) continue;
    share.cpus = each[index];
    share.gpus = slurm_text::count_indices(share.gpu_list);
    if (share.gpus == 0) share.gpu_list.clear();
    share.gpu_types = types_of(wanted_gpus, share.gpus);
    found.insert_or_assign(index, std::move(share));
  }
  if (nodes == 0 || found.size() != nodes)
    return Error(fmt::format("a step on the job's {} nodes told of {}", nodes, found.size()));
  std::vector<NodeShare> shares;
  for (auto& [index, share] : found) shares.push_back(std::move(share));
  return shares;
}

}  // namespace swell::launcher
