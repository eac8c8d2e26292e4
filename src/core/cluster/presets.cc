// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/presets.h"

#include <charconv>
#include <fmt/format.h>

namespace swell::cluster {

namespace {

constexpr double kEightNdrCards = 8 * 50e9;  // 8 x 400 Gbit/s
constexpr int kRackNodes = 16;
constexpr int kMaxNodes = 4096;

/// Reads a whole number at the front of `text` and drops it.
int take_number(std::string_view& text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc()) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

Cluster uniform_cluster(std::string name, const GpuType& type, int nodes, int gpus_per_node,
                        double network_bytes_per_s, int nodes_per_rack, double cross_rack_factor) {
  std::vector<Node> list;
  for (int i = 0; i < nodes; ++i) {
    const int rack = nodes_per_rack > 0 ? i / nodes_per_rack : 0;
    list.push_back({fmt::format("n{}", i + 1), rack,
                    std::vector<int>(static_cast<std::size_t>(gpus_per_node), 0),
                    network_bytes_per_s});
  }
  return Cluster::make(std::move(name), {type}, std::move(list), cross_rack_factor).value();
}

Result<Cluster> preset(std::string_view name) {
  const Error unknown(fmt::format(
      "there is no cluster preset \"{}\"; one is NODESxGPUS-TYPE, such as 8x8-h100 or 128x8-h100, "
      "with 1 to {} nodes of 1 to {} GPUs of a type in the catalogue",
      name, kMaxNodes, kMaxGpusPerNode));
  std::string_view rest = name;
  const int nodes = take_number(rest);
  if (nodes < 1 || nodes > kMaxNodes || rest.empty() || rest[0] != 'x') return unknown;
  rest.remove_prefix(1);
  const int gpus = take_number(rest);
  if (gpus < 1 || gpus > kMaxGpusPerNode || rest.empty() || rest[0] != '-') return unknown;
  rest.remove_prefix(1);
  const auto type = find_gpu_type(rest);
  if (!type) return unknown;
  const bool several_racks = nodes > kRackNodes;
  return uniform_cluster(std::string(name), *type, nodes, gpus, kEightNdrCards,
                         several_racks ? kRackNodes : 0, several_racks ? 0.5 : 1.0);
}

}  // namespace swell::cluster
