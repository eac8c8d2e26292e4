// SPDX-License-Identifier: BSD-3-Clause
#include "core/cluster/cluster.h"

#include "core/count_of.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::cluster {

namespace {

Result<void> check_type(const GpuType& type) {
  if (type.name.empty()) return Error("a GPU type has no name");
  if (!(type.fp32_tflops > 0))
    return Error(
        fmt::format("GPU type {} has no fp32 speed; it must be above 0 TFLOPS", type.name));
  if (!(type.memory_bytes > 0))
    return Error(fmt::format("GPU type {} has no memory; it must be above 0 bytes", type.name));
  if (!(type.link_bytes_per_s > 0))
    return Error(fmt::format("GPU type {} has no link bandwidth; it must be above 0", type.name));
  if (!(type.link_saturation_bytes > 1))
    return Error(fmt::format("GPU type {}: its link saturates at {:g} bytes; it must be above 1",
                             type.name, type.link_saturation_bytes));
  return {};
}

Result<void> check_node(const Node& node, std::size_t types) {
  if (node.name.empty()) return Error("a node has no name");
  if (node.gpus.empty())
    return Error(fmt::format("node {} has no GPUs; at least 1 is needed", node.name));
  if (node.gpus.size() > kMaxGpusPerNode)
    return Error(fmt::format("node {} has {}; at most {} are supported", node.name,
                             count_of(node.gpus.size(), "GPU"), kMaxGpusPerNode));
  for (int type : node.gpus)
    if (type < 0 || static_cast<std::size_t>(type) >= types)
      return Error(fmt::format("node {} has a GPU of type number {}; there are {} types", node.name,
                               type, types));
  if (!(node.network_bytes_per_s > 0))
    return Error(fmt::format("node {} has no network bandwidth; it must be above 0", node.name));
  if (node.network_cards < 0)
    return Error(fmt::format("node {} has {} network cards; it must be 0 or more", node.name,
                             node.network_cards));
  if (!(node.link_bytes_per_s >= 0))
    return Error(fmt::format("node {}: its link's bandwidth must be 0 or more", node.name));
  return {};
}

/// Returns the index of the variant of `type` with bandwidth `link`; adds the variant if it is new.
/// Smaller messages saturate a slower link.
int with_link(std::vector<GpuType>& types, int type, double link) {
  GpuType variant = types[static_cast<std::size_t>(type)];
  if (variant.link_bytes_per_s == link) return type;
  variant.link_saturation_bytes =
      std::max(2.0, variant.link_saturation_bytes * std::min(1.0, link / variant.link_bytes_per_s));
  variant.link_bytes_per_s = link;
  const auto found = std::find(types.begin(), types.end(), variant);
  if (found != types.end()) return static_cast<int>(found - types.begin());
  types.push_back(std::move(variant));
  return static_cast<int>(types.size()) - 1;
}

Result<void> check_classes(const DistanceClasses& classes, std::size_t nodes) {
  if (classes.groups.size() != nodes)
    return Error(fmt::format("distance classes of {}; the cluster has {}",
                             count_of(classes.groups.size(), "node"), nodes));
  const std::size_t levels = classes.groups[0].size();
  for (const std::vector<int>& groups : classes.groups)
    if (groups.size() != levels)
      return Error(fmt::format(
          "one node has groups of {} levels, another of {}; give all nodes the same number", levels,
          groups.size()));
  if (classes.share.size() != levels + 1 || classes.measured_bytes_per_s.size() != levels + 1)
    return Error(fmt::format("{} levels of groups need {} distance classes; {} are given", levels,
                             levels + 1, classes.share.size()));
  for (std::size_t i = 0; i <= levels; ++i) {
    if (!(classes.share[i] > 0 && classes.share[i] <= 1))
      return Error(
          fmt::format("the share of distance class {} is {:g}; it must be above 0 and at most 1",
                      i + 1, classes.share[i]));
    if (!(classes.measured_bytes_per_s[i] >= 0))
      return Error(
          fmt::format("the measured bandwidth of distance class {} must be above 0", i + 1));
  }
  return {};
}

}  // namespace

double network_reach(const Node& node, int gpus) noexcept {
  const int all = static_cast<int>(node.gpus.size());
  const int cards = node.network_cards > 0 ? std::min(node.network_cards, all) : all;
  if (gpus >= cards) return node.network_bytes_per_s;
  return node.network_bytes_per_s * (static_cast<double>(gpus) / cards);
}

Result<Cluster> Cluster::make(std::string name, std::vector<GpuType> types, std::vector<Node> nodes,
                              Interconnect interconnect) {
  Cluster made;
  if (nodes.empty()) return Error("the cluster has no nodes; at least 1 is needed");
  if (const double factor = interconnect.cross_rack_factor; !(factor > 0 && factor <= 1))
    return Error(
        fmt::format("the cross-rack factor is {:g}; it must be above 0 and at most 1", factor));
  for (const GpuType& type : types)
    if (auto good = check_type(type); !good) return good.error();
  const std::size_t described = types.size();
  for (Node& node : nodes) {
    if (auto good = check_node(node, described); !good) return good.error();
    if (node.link_bytes_per_s > 0)
      for (int& type : node.gpus) type = with_link(types, type, node.link_bytes_per_s);
    if (!made.node_by_name_.emplace(node.name, static_cast<int>(made.slowest_link_.size())).second)
      return Error(fmt::format("node {} is listed twice", node.name));
    double slowest = types[static_cast<std::size_t>(node.gpus[0])].link_bytes_per_s;
    for (int type : node.gpus)
      slowest = std::min(slowest, types[static_cast<std::size_t>(type)].link_bytes_per_s);
    made.slowest_link_.push_back(slowest);
    made.gpu_count_ += static_cast<int>(node.gpus.size());
  }
  for (const auto& [pair, bandwidth] : std::exchange(interconnect.measured, {})) {
    const int count = static_cast<int>(nodes.size());
    if (pair.first < 0 || pair.second < 0 || pair.first >= count || pair.second >= count ||
        pair.first == pair.second)
      return Error("a measured bandwidth must be between two different nodes of the cluster");
    if (!(bandwidth > 0)) return Error("a measured bandwidth must be above 0");
    interconnect.measured[std::minmax(pair.first, pair.second)] = bandwidth;
  }
  if (!interconnect.classes.groups.empty() || !interconnect.classes.share.empty())
    if (auto good = check_classes(interconnect.classes, nodes.size()); !good) return good.error();
  made.name_ = std::move(name);
  made.types_ = std::move(types);
  made.nodes_ = std::move(nodes);
  made.interconnect_ = std::move(interconnect);
  return made;
}

std::optional<int> Cluster::find_node(std::string_view name) const {
  const auto found = node_by_name_.find(name);
  if (found == node_by_name_.end()) return std::nullopt;
  return found->second;
}

std::optional<int> find_type(const Cluster& cluster, std::string_view name) {
  for (std::size_t i = 0; i < cluster.types().size(); ++i)
    if (cluster.types()[i].name == name) return static_cast<int>(i);
  return std::nullopt;
}

/// Returns the bandwidth between two nodes whose ends can send `network` bytes a second.
/// `all_cards`: both ends use all their cards.
double Cluster::between(int a, int b, double network, bool all_cards) const noexcept {
  if (a == b) return network;
  const auto& pairs = interconnect_.measured;
  const DistanceClasses& classes = interconnect_.classes;
  if (!pairs.empty()) {
    const auto found = pairs.find(std::minmax(a, b));
    if (found != pairs.end()) return all_cards ? found->second : std::min(found->second, network);
  }
  if (!classes.share.empty()) {
    const std::vector<int>& mine = classes.groups[static_cast<std::size_t>(a)];
    const std::vector<int>& theirs = classes.groups[static_cast<std::size_t>(b)];
    std::size_t level = 0;
    while (level < mine.size() && (mine[level] < 0 || mine[level] != theirs[level])) ++level;
    const double measured = classes.measured_bytes_per_s[level];
    return measured > 0 ? std::min(measured, network) : network * classes.share[level];
  }
  return node(a).rack == node(b).rack ? network : network * interconnect_.cross_rack_factor;
}

double Cluster::node_bandwidth(int a, int b) const noexcept {
  if (a == b) return slowest_link_[static_cast<std::size_t>(a)];
  return between(a, b, std::min(node(a).network_bytes_per_s, node(b).network_bytes_per_s), true);
}

double Cluster::network_bandwidth(int a, int gpus_a, int b, int gpus_b) const noexcept {
  const bool all = gpus_a >= static_cast<int>(node(a).gpus.size()) &&
                   gpus_b >= static_cast<int>(node(b).gpus.size());
  return between(a, b, std::min(network_reach(node(a), gpus_a), network_reach(node(b), gpus_b)),
                 all);
}

double Cluster::effective_bandwidth(GpuRef a, GpuRef b) const noexcept {
  if (a.node != b.node || a.part != b.part) return network_bandwidth(a.node, 1, b.node, 1);
  return std::min(type(type_of(a)).link_bytes_per_s, type(type_of(b)).link_bytes_per_s);
}

}  // namespace swell::cluster
