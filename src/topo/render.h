// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"
#include "topo/machine.h"

/// Forms of a node's topology that `swell topo` prints.
namespace swell::topo {

/// Returns a drawing for people: NUMA nodes with their ports and GPUs, then the links between GPUs.
std::string drawing(const Machine& machine, const cluster::NodeDescription& node);

/// Returns JSON with every figure under a name with its unit, and the compact form that is
/// published.
Json to_json(const Machine& machine, const cluster::NodeDescription& node);

/// Returns lines of gres.conf for the node's GPUs: Type, File, Cores (Slurm's logical numbers) and
/// Links (NVLinks to each GPU of the node). Empty if there are no GPUs.
std::string gres_conf(const Machine& machine, const cluster::NodeDescription& node);

}  // namespace swell::topo
