// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/presets.h"

#include "core/count_of.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <vector>

namespace swell::cluster {

namespace {

constexpr double kEightNdrCards = 8 * 50e9;  // 8 x 400 Gbit/s
constexpr std::size_t kRackNodes = 16;
constexpr int kMaxNodes = 4096;

/// Reads a whole number at the start of `text` and removes it.
int take_number(std::string_view& text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc()) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// Removes `sign` from the start of `text` if it is there. Returns whether it was.
bool take(std::string_view& text, char sign) {
  if (!text.starts_with(sign)) return false;
  text.remove_prefix(1);
  return true;
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
  return Cluster::make(std::move(name), {type}, std::move(list), {cross_rack_factor}).value();
}

Result<Cluster> preset(std::string_view name) {
  std::string known;
  for (const GpuType& type : gpu_catalogue()) known += (known.empty() ? "" : ", ") + type.name;
  const Error unknown(fmt::format(
      "there is no cluster preset \"{}\"; one is NODESxGPUS:TYPE, such as 8x8:h100 or 128x8:h100, or several of these as 4x8:h100+4x8:l20, with 1 to {} of 1 to {} of a type in the catalogue: {}",
      name, count_of(kMaxNodes, "node"), count_of(kMaxGpusPerNode, "GPU"), known));
  std::vector<GpuType> types;
  std::vector<Node> nodes;
  for (std::string_view rest = name; !rest.empty() || nodes.empty();) {
    const int count = take_number(rest);
    if (count < 1 || !take(rest, 'x')) return unknown;
    const int gpus = take_number(rest);
    if (gpus < 1 || gpus > kMaxGpusPerNode || (!take(rest, '-') && !take(rest, ':')))
      return unknown;
    const std::string_view word = rest.substr(0, rest.find('+'));
    rest.remove_prefix(word.size());
    const auto type = find_gpu_type(word);
    if (!type || (take(rest, '+') && rest.empty())) return unknown;
    if (count > kMaxNodes - static_cast<int>(nodes.size())) return unknown;
    std::size_t number = 0;
    while (number < types.size() && types[number].name != type->name) ++number;
    if (number == types.size()) types.push_back(*type);
    for (int i = 0; i < count; ++i)
      nodes.push_back({fmt::format("n{}", nodes.size() + 1), 0,
                       std::vector<int>(static_cast<std::size_t>(gpus), static_cast<int>(number)),
                       kEightNdrCards});
  }
  const bool several_racks = nodes.size() > kRackNodes;
  for (std::size_t i = 0; several_racks && i < nodes.size(); ++i)
    nodes[i].rack = static_cast<int>(i / kRackNodes);
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), ':', '-');
  return Cluster::make(std::move(plain), std::move(types), std::move(nodes),
                       {several_racks ? 0.5 : 1.0});
}

}  // namespace swell::cluster
