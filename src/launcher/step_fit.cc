// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/step_fit.h"

#include <fmt/format.h>

#include "core/count_of.h"

namespace swell::launcher {

std::string step_misfit(int nodes, int workers, const std::string& tasks_per_node,
                        const std::string& node, bool is_listed) {
  const std::string asked =
      nodes == 1 ? std::to_string(workers) : fmt::format("{}(x{})", workers, nodes);
  if (is_listed && (tasks_per_node.empty() || tasks_per_node == asked)) return {};
  return fmt::format(
      "srun was asked for {} on each of {} and made a step with SLURM_STEP_TASKS_PER_NODE={} on "
      "{}{}: a cli_filter or SPANK plugin of the site must leave steps alone that have SWELL_AGENT "
      "in their environment",
      count_of(workers, "worker"), count_of(nodes, "node"),
      tasks_per_node.empty() ? "?" : tasks_per_node, node,
      is_listed ? "" : ", which is not one of them");
}

}  // namespace swell::launcher
