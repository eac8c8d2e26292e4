// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <fmt/format.h>
#include <string>

#include "core/cluster/fabric.h"

/// Descriptions and fabrics that tests share.
namespace swell::test {

/// Returns the description that a DGX H100 publishes: 8 GPUs behind NVSwitch, and a 400 Gbit/s port
/// for each.
inline cluster::NodeDescription dgx(std::string leaf = "") {
  cluster::NodeDescription node;
  node.leaf = std::move(leaf);
  node.usual_link = {0, 0, cluster::LinkKind::nvlink, 450e9};
  for (int i = 0; i < 8; ++i) {
    node.gpus.push_back({"h100", fmt::format("0000:{:02x}:00.0", 0x1b + 16 * i), i / 4});
    node.ports.push_back({fmt::format("mlx5_{}", i),
                          1,
                          cluster::LinkLayer::infiniband,
                          50e9,
                          0xfe80000000000000,
                          0x0c42a10300000000 + static_cast<std::uint64_t>(i),
                          fmt::format("0000:{:02x}:00.0", 0x18 + 16 * i),
                          i / 4,
                          {i}});
  }
  return node;
}

/// Returns nodes n1, n2, ... in order: `racks` switches with `each` DGX.
inline std::vector<cluster::FabricNode> dgx_nodes(int racks, int each) {
  std::vector<cluster::FabricNode> nodes;
  for (int i = 0; i < racks * each; ++i)
    nodes.push_back(
        {fmt::format("n{}", i + 1), "h100", 8, dgx(fmt::format("leaf{}", i / each + 1))});
  return nodes;
}

}  // namespace swell::test
