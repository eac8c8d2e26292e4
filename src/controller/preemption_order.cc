// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/preemption_order.h"

#include <dlfcn.h>
#include <sstream>
#include <string>

namespace swell::controller {

namespace {

/// Whether the plugin at `path` is loaded, is Swell's, and sorts.
bool sorts(const std::string& path) {
  void* const plugin = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (plugin == nullptr) return false;
  const auto asked = reinterpret_cast<int (*)()>(dlsym(plugin, "swell_sorts_preemption"));
  const bool result = asked != nullptr && asked() != 0;
  dlclose(plugin);
  return result;
}

}  // namespace

policy::Preemption preemption_order(const slurm::ControllerConfig& config) {
  if (config.preempt_type != "preempt/qos" && config.preempt_type != "preempt/partition_prio")
    return policy::Preemption::as_reclaimed;  // none but Swell takes anything back
  std::istringstream folders(config.plugin_dir);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (sorts(folder + "/select_cons_tres.so")) return policy::Preemption::as_reclaimed;
  return config.preempts_youngest_first ? policy::Preemption::youngest_first
                                        : policy::Preemption::oldest_first;
}

}  // namespace swell::controller
