// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/sched/base_scheduler.h"

#include <dlfcn.h>
#include <exception>
#include <fmt/format.h>
#include <link.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace swell::sched {

namespace {

struct Base {
  void* library = nullptr;
  int (*init)() = nullptr;
  void (*fini)() = nullptr;
  int (*reconfig)() = nullptr;
};
Base base;
std::string problem;

std::string folder_of(const char* path) {
  const std::string text(path);
  const std::size_t slash = text.rfind('/');
  return slash == std::string::npos ? std::string() : text.substr(0, slash);
}

/// Folders that Slurm loaded something from: PluginDir is among them, and asking slurmctld for it is
/// not possible before it answers RPCs.
std::vector<std::string> plugin_folders() {
  std::vector<std::string> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/')
          static_cast<std::vector<std::string>*>(found)->push_back(folder_of(info->dlpi_name));
        return 0;
      },
      &folders);
  folders.emplace_back(SWELL_SLURM_PLUGINDIR);
  return folders;
}

#ifdef SWELL_SHADOW
/// The folder that this plugin was loaded from.
std::string own_folder() {
  Dl_info info{};
  static const int here = 0;
  return dladdr(&here, &info) != 0 && info.dli_fname != nullptr ? folder_of(info.dli_fname) : std::string();
}
#endif

std::string find_plugin(const std::string& file) {
#ifdef SWELL_SHADOW
  const std::string skipped = own_folder();  // what is called so there is this plugin itself
#else
  const std::string skipped;
#endif
  for (const std::string& folder : plugin_folders()) {
    const std::string path = folder + "/" + file;
    if (!folder.empty() && folder != skipped && access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

template <typename Function>
void look_up(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(base.library, symbol));
}

const char* load(const std::string& type) {
  const std::string file = "sched_" + type.substr(type.find('/') + 1) + ".so";
  const std::string path = find_plugin(file);
  if (path.empty()) {
    problem = fmt::format("BaseScheduler={}: no {} in Slurm's plugin folder", type, file);
    return problem.c_str();
  }
  base.library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (base.library == nullptr) {
    problem = fmt::format("BaseScheduler={}: {}", type, dlerror());
    return problem.c_str();
  }
  look_up(base.init, "init");
  look_up(base.fini, "fini");
  look_up(base.reconfig, "sched_p_reconfig");
  if (base.init != nullptr && base.init() != 0) {
    problem = fmt::format("BaseScheduler={}: {} failed to start", type, path);
    return problem.c_str();
  }
  return nullptr;
}

}  // namespace

const char* load_base(const char* type) noexcept {
  try {
    return load(type);
  } catch (const std::exception&) {
    return "BaseScheduler: out of memory while loading it";
  }
}

void unload_base() noexcept {
  // Its code stays loaded: a thread of it may still be on its way out.
  if (base.fini != nullptr) base.fini();
  base = Base{};
}

int reconfigure_base() noexcept { return base.reconfig != nullptr ? base.reconfig() : 0; }

}  // namespace swell::sched
