// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/stock_plugin.h"

#include <algorithm>
#include <cstddef>
#include <dlfcn.h>
#include <link.h>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace swell::plugins {

namespace {

void add_folder_of(std::string_view path, std::vector<std::string>& folders) {
  const std::string folder(path.substr(0, path.rfind('/')));
  if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
}

/// Returns folders from which Slurm has loaded something: slurmctld cannot be asked for PluginDir
/// before it answers RPCs.
std::vector<std::string> plugin_folders() {
  std::vector<std::string> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/')
          add_folder_of(info->dlpi_name, *static_cast<std::vector<std::string>*>(found));
        return 0;
      },
      &folders);
  folders.emplace_back(SWELL_SLURM_PLUGINDIR);
  return folders;
}

bool is_swells_own(void* library) {
  const auto* name = static_cast<const char*>(dlsym(library, "plugin_name"));
  return name != nullptr && std::string_view(name).starts_with("Swell");
}

}  // namespace

StockPlugin load_stock_plugin(const std::string& file) {
  StockPlugin plugin;
  plugin.problem = "no " + file + " in Slurm's plugin folder";
  for (const std::string& folder : plugin_folders()) {
    const std::string path = folder + "/" + file;
    if (folder.empty() || access(path.c_str(), R_OK) != 0) continue;
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      plugin.problem = reason != nullptr ? reason : path;
    } else if (is_swells_own(library)) {
      dlclose(library);
    } else {
      return {library, path, {}};
    }
  }
  return plugin;
}

}  // namespace swell::plugins
