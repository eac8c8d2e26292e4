// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/step_fit.h"

#include <fmt/format.h>

#include "core/count_of.h"
#include "core/number.h"
#include "core/slurm_text/lists.h"

namespace swell::launcher {

namespace {

constexpr const char* kLeaveSteps =
    "a cli_filter or SPANK plugin of the site must leave steps alone that have SWELL_AGENT in "
    "their environment";
constexpr const char* kLeaveIds =
    "a SPANK plugin or TaskProlog of the site must leave it in their environment as Slurm sets it";

}  // namespace

std::string step_misfit(int nodes, int workers, const std::string& tasks_per_node,
                        const std::string& node, bool is_listed) {
  const std::string asked =
      nodes == 1 ? std::to_string(workers) : fmt::format("{}(x{})", workers, nodes);
  if (is_listed && (tasks_per_node.empty() || tasks_per_node == asked)) return {};
  return fmt::format(
      "srun was asked for {} on each of {} and made a step with SLURM_STEP_TASKS_PER_NODE={} on "
      "{}{}: {}",
      count_of(workers, "worker"), count_of(nodes, "node"),
      tasks_per_node.empty() ? "?" : tasks_per_node, node,
      is_listed ? "" : ", which is not one of them", kLeaveSteps);
}

std::string gpus_misfit(int gpus, const std::string& on_node, bool sees_any,
                        const std::string& node) {
  if (gpus <= 0 || on_node == std::to_string(gpus) || (on_node.empty() && sees_any)) return {};
  return fmt::format("srun was asked for {} on {} and made a step with {}: {}",
                     count_of(gpus, "GPU"), node,
                     on_node.empty() ? "none" : "SLURM_GPUS_ON_NODE=" + on_node, kLeaveSteps);
}

std::string mig_note(int workers, const std::string& visible, const std::string& node) {
  int instances = 0;
  for (const std::string_view each : slurm_text::split_list(visible))
    instances += each.starts_with("MIG-");
  if (workers < 2 || instances < 2) return {};
  return fmt::format(
      "{} has {} MIG instances for {} workers, and CUDA shows a process only the first of them: a "
      "program must set CUDA_VISIBLE_DEVICES to the entry of its LOCAL_RANK before it uses CUDA, "
      "and use device 0",
      node, instances, workers);
}

std::string local_id_misfit(int workers, const char* local, const std::string& node) {
  if (local == nullptr)  // all would be worker 0
    return workers <= 1 ? ""
                        : fmt::format("{} has workers without SLURM_LOCALID: {}", node, kLeaveIds);
  const auto number = read_number<int>(local);
  if (number && *number >= 0 && *number < workers) return {};
  return fmt::format("{} has a worker with SLURM_LOCALID={}, which is not one of 0 to {}: {}", node,
                     local, workers - 1, kLeaveIds);
}

std::string same_local_id(int local, const std::string& node) {
  return fmt::format("{} has two workers with SLURM_LOCALID={}: {}", node, local, kLeaveIds);
}

}  // namespace swell::launcher
