// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/container.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <link.h>
#include <optional>
#include <sstream>
#include <string_view>
#include <unistd.h>

namespace swell::launcher {

namespace {

constexpr std::string_view kFolder = "/run/swell";  // in the container
constexpr std::string_view kUsualMunge = "/run/munge/munge.socket.2";
constexpr std::string_view kMounts = "--container-mounts";

/// Returns the value that sbatch was given as `option` of pyxis, with '_' for '-'.
std::optional<std::string> given_to_sbatch(const char* const* environment,
                                           std::string_view option) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.find("_SLURM_SPANK_OPTION_pyxis_") != std::string_view::npos &&
        name.ends_with(option) && name.size() < variable.size())
      return std::string(variable.substr(name.size() + 1));
  }
  return std::nullopt;
}

bool is_option(std::string_view word, std::string_view option) {
  return word.starts_with(option) && (word.size() == option.size() || word[option.size()] == '=');
}

std::string name_of(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

}  // namespace

bool is_in_container(const Options& options, const char* const* environment) {
  const auto names_one = [](const std::string& word) {
    return is_option(word, "--container-image") || is_option(word, "--container-name");
  };
  return std::any_of(options.each_step.begin(), options.each_step.end(), names_one) ||
         given_to_sbatch(environment, "_container_image") ||
         given_to_sbatch(environment, "_container_name");
}

ContainerShim container_shim(const std::string& shim, const std::string& munge_socket,
                             const std::vector<std::string>& libraries) {
  const std::string socket = munge_socket.empty() ? std::string(kUsualMunge) : munge_socket;
  const std::string munge_folder = socket.substr(0, socket.rfind('/'));
  const std::string library_folder = fmt::format("{}/lib", kFolder);
  ContainerShim made;
  // Mounts the folder, not the socket: munged makes a new socket when it is restarted.
  made.munge_socket = fmt::format("{}/munge/{}", kFolder, name_of(socket));
  made.mounts = fmt::format("{}:{}/munge", munge_folder, kFolder);
  const std::string inside = fmt::format("{}/{}", kFolder, name_of(shim));
  made.mounts += fmt::format(",{}:{}:ro", shim, inside);
  std::string loader;
  for (const std::string& library : libraries) {
    const std::string name = name_of(library);
    if (name.starts_with("ld-") || name.starts_with("ld64") || name.starts_with("ld.so"))
      loader = fmt::format("{}/{}", library_folder, name);
    made.mounts += fmt::format(",{}:{}/{}:ro", library, library_folder, name);
  }
  made.command = {loader, "--library-path", library_folder, inside};
  return made;
}

std::vector<std::string> own_libraries() {
  std::vector<std::string> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        // The program itself has no name here, and the kernel's vDSO has no path.
        if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/')
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
        return 0;
      },
      &found);
  return found;
}

uid_t outside_uid(std::string_view uid_map, uid_t uid) {
  std::istringstream lines{std::string(uid_map)};
  for (std::uint64_t inside = 0, outside = 0, count = 0; lines >> inside >> outside >> count;)
    if (uid >= inside && uid - inside < count) return static_cast<uid_t>(outside + (uid - inside));
  return uid;
}

uid_t own_outside_uid() {
  std::ifstream file("/proc/self/uid_map");
  std::ostringstream map;
  map << file.rdbuf();
  return outside_uid(map.str(), geteuid());
}

void add_mounts(Options& options, const char* const* environment, const std::string& mounts) {
  std::vector<std::string> others;
  std::string all;
  const auto take = [&all](std::string_view value) {
    if (!value.empty()) all += (all.empty() ? "" : ",") + std::string(value);
  };
  const std::vector<std::string>& words = options.each_step;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_option(words[i], kMounts)) others.push_back(words[i]);
    else if (words[i].size() > kMounts.size())
      take(std::string_view(words[i]).substr(kMounts.size() + 1));
    else if (i + 1 < words.size()) take(words[++i]);
  }
  if (all.empty()) take(given_to_sbatch(environment, "_container_mounts").value_or(""));
  take(mounts);
  others.push_back(fmt::format("{}={}", kMounts, all));
  options.each_step = std::move(others);
}

}  // namespace swell::launcher
