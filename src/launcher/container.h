// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "launcher/options.h"

/// Steps whose tasks pyxis puts into a container (--container-image, --container-name).
namespace swell::launcher {

/// Returns whether steps run in a container, by these options or by options of pyxis that sbatch
/// has put into `environment`.
bool is_in_container(const Options& options, const char* const* environment);

/// How to run the shim in an image without Swell: with the loader and the libraries of the host,
/// which are mounted beside it.
struct ContainerShim {
  std::vector<std::string> command;  ///< ends with the shim's path
  std::string munge_socket;
  std::string mounts;  ///< FROM:TO,..., for --container-mounts
};

/// `libraries`: files of the host that the shim is linked with, the loader among them.
ContainerShim container_shim(const std::string& shim, const std::string& munge_socket,
                             const std::vector<std::string>& libraries);

/// Returns the libraries of this program, which include all those of the shim.
std::vector<std::string> own_libraries();

/// Adds mounts to those of the user, which are in `options` or in variables that sbatch has put
/// into `environment`. If an option is given more than once, Slurm passes only the last value to
/// tasks.
void add_mounts(Options& options, const char* const* environment, const std::string& mounts);

/// Returns the host's uid for `uid` in a user namespace with this /proc/self/uid_map, as munge
/// reports it; `uid` itself if the map does not contain it.
uid_t outside_uid(std::string_view uid_map, uid_t uid);
/// Returns outside_uid() of this process's effective user.
uid_t own_outside_uid();

}  // namespace swell::launcher
