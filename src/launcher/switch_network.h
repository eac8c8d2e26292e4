// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/node_description.h"
#include "runtime/transport/nccl_link.h"
#include "runtime/transport/ucx.h"

/// Chooses the network cards of a node for the state of a live switch. swellrun asks Slurm for the
/// descriptions that nodes publish; the shim on the node sees which cards are up.
namespace swell::launcher {

/// Reads descriptions by node from the output of `scontrol show node NODES`; leaves out nodes that
/// publish none, or one that cannot be read.
std::map<std::string, cluster::NodeDescription> read_descriptions(std::string_view text);

/// Returns the ports of a node for a worker that has `gpus`, by Slurm's index: those that are
/// nearest to one of its GPUs, or all if the description does not say. "mlx5_0:1,mlx5_3:1"; empty:
/// the node describes no port.
std::string ports_near(const cluster::NodeDescription& node, const std::vector<int>& gpus);

/// Returns UCX's options by swellrun's --switch-network; nullopt: UCX is not used, also if it was
/// not asked for and would use the same cards as TCP. Uses the first of these that exists: devices
/// named in `network`, UCX's own setting, `ports` that are up, and the card that has `address`, at
/// which others reach the shim. Looks no host's name up.
std::optional<runtime::Ucx::Options> ucx_of(const std::string& network, const std::string& ports,
                                            const std::string& address,
                                            const std::string& sysfs = "/sys");

/// Returns how programs move state on GPUs by NCCL; nullopt: they do not use NCCL.
std::optional<runtime::NcclOptions> nccl_of(const std::string& network);

}  // namespace swell::launcher
