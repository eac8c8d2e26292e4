// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "launcher/options.h"

/// Steps whose tasks pyxis puts into a container (--container-image, --container-name).
namespace swell::launcher {

/// Returns whether each step of these options, or of this environment, which sbatch gave the
/// options of pyxis, runs in a container.
bool is_in_container(const Options& options, const char* const* environment);

/// How the shim runs in an image that has nothing of Swell: by the loader and the libraries of the
/// host, which are mounted beside it.
struct ContainerShim {
  std::vector<std::string> command;  ///< ends with the shim's path
  std::string munge_socket;
  std::string mounts;  ///< FROM:TO,..., for --container-mounts
};

/// `libraries`: files of the host that the shim is linked with, the loader among them.
ContainerShim container_shim(const std::string& shim, const std::string& munge_socket,
                             const std::vector<std::string>& libraries);

/// The libraries of this program, which has all that the shim has.
std::vector<std::string> own_libraries();

/// Adds mounts to those of the user, which are in `options` or in variables that sbatch has put
/// into `environment`. If an option is given more than once, Slurm passes only the last value to
/// tasks.
void add_mounts(Options& options, const char* const* environment, const std::string& mounts);

/// The user of the host that `uid` of a user namespace with this /proc/self/uid_map stands for:
/// munge names users so. `uid` itself where the map does not have it.
uid_t outside_uid(std::string_view uid_map, uid_t uid);
/// That of this process.
uid_t own_outside_uid();

}  // namespace swell::launcher
