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

/// Which cards of a node the state of a live switch goes through: found by swellrun, which asks
/// Slurm what nodes say of themselves, and by the shim on the node, which sees what is up.
namespace swell::launcher {

/// Descriptions by node, of `scontrol show node NODES`; nodes that publish none, or one that cannot
/// be read, are left out.
std::map<std::string, cluster::NodeDescription> read_descriptions(std::string_view text);

/// Ports of a node for a worker that has `gpus`, by Slurm's index: those to which one of its GPUs
/// has no nearer one, or where the description does not say, all. "mlx5_0:1,mlx5_3:1"; empty: none
/// is described.
std::string ports_near(const cluster::NodeDescription& node, const std::vector<int>& gpus);

/// Returns UCX's options here, by swellrun's --switch-network; nothing: it is left alone, as
/// also where it would go over the same cards as TCP, unless it was asked for. The first of these
/// that there is: devices named there, UCX's own setting, `ports` that are up, and the card that
/// has `address`, at which others reach the shim. The name of a host is never looked up.
std::optional<runtime::Ucx::Options> ucx_of(const std::string& network, const std::string& ports,
                                            const std::string& address,
                                            const std::string& sysfs = "/sys");

/// How programs are to move what is on GPUs by NCCL; nothing: not by it.
std::optional<runtime::NcclOptions> nccl_of(const std::string& network);

}  // namespace swell::launcher
