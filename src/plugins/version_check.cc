// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/version_check.h"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <slurm/slurm_version.h>
#include <string_view>
#include <vector>

namespace swell::plugins {

std::string version_text(std::uint32_t number) {
  return fmt::format("{}.{:02}.{}", number >> 16, number >> 8 & 255, number & 255);
}

std::string version_problem(const std::string& plugin_file, std::uint32_t built_for,
                            std::uint32_t running, bool same_release_is_enough) {
  if (running == 0 || built_for == running ||
      (same_release_is_enough && built_for >> 8 == running >> 8))
    return {};
  const std::string mine = version_text(built_for), theirs = version_text(running);
  return fmt::format(
      "swell: {} is built for Slurm {} and cannot be loaded by Slurm {}: install Swell built for that one: on Debian the "
      "package swell-slurm-plugins whose version has +slurm{} (contrib/packaging --slurm {}.{:02} makes it), elsewhere "
      "with the headers of Slurm {}, ./configure --with-slurm=PREFIX && make install",
      plugin_file, mine, theirs, theirs, running >> 16, running >> 8 & 255, theirs);
}

namespace {

/// Returns the version of a plugin that this process has loaded; 0: it is not a plugin, or belongs
/// to Swell.
std::uint32_t version_of(const char* path) {
  void* const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  const auto* version = static_cast<const std::uint32_t*>(dlsym(library, "plugin_version"));
  const auto* type = static_cast<const char*>(dlsym(library, "plugin_type"));
  const auto* name = static_cast<const char*>(dlsym(library, "plugin_name"));
  const bool is_stock = version != nullptr && type != nullptr && name != nullptr &&
                        std::string_view(type) != "spank" && strncasecmp(name, "swell", 5) != 0;
  const std::uint32_t found = is_stock ? *version : 0;
  dlclose(library);
  return found;
}

/// Returns Slurm's own version with its micro number, which no public function gives: that of
/// Slurm's plugins in this process. 0: none is loaded; then only Slurm's own message appears.
std::uint32_t running_version() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/')
          static_cast<std::vector<std::string>*>(found)->emplace_back(info->dlpi_name);
        return 0;
      },
      &paths);
  for (const std::string& path : paths)
    if (const std::uint32_t version = version_of(path.c_str()); version != 0) return version;
  return 0;
}

__attribute__((constructor)) void look_when_loaded() noexcept {
  try {
    Dl_info self{};
    if (dladdr(reinterpret_cast<const void*>(&look_when_loaded), &self) == 0 ||
        self.dli_fname == nullptr)
      return;
#ifdef SWELL_SPANK
    constexpr bool same_release_is_enough = true;
#else
    constexpr bool same_release_is_enough = false;
#endif
    const std::string problem = version_problem(self.dli_fname, SLURM_VERSION_NUMBER,
                                                running_version(), same_release_is_enough);
    if (problem.empty()) return;
    const auto say =
        reinterpret_cast<void (*)(const char*, ...)>(dlsym(RTLD_DEFAULT, "slurm_error"));
    if (say != nullptr) say("%s", problem.c_str());
    else std::fprintf(stderr, "%s\n", problem.c_str());
  } catch (...) {  // Slurm itself reports that it does not load the plugin
  }
}

}  // namespace

}  // namespace swell::plugins
