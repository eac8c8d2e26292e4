// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/fabric.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace swell::cluster {

namespace {

// Bandwidths assumed for a node that publishes none: 10 Gbit/s, and PCIe 3.0 x16 between GPUs.
constexpr double kDefaultNetwork = 10e9 / 8;
constexpr double kDefaultLink = 12e9;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

const char* to_text(Source source) noexcept {
  switch (source) {
    case Source::measured: return "measured";
    case Source::description: return "description";
    case Source::topology_conf: return "topology.conf";
    case Source::class_default: break;
  }
  return "class default";
}

Fabric Fabric::make(std::vector<FabricNode> nodes, SlurmTopology topology,
                    Calibration calibration) {
  Fabric made;
  made.nodes_ = std::move(nodes);
  made.topology_ = std::move(topology);
  made.calibration_ = std::move(calibration);
  for (std::size_t i = 0; i < made.nodes_.size(); ++i)
    made.by_name_.emplace(made.nodes_[i].name, static_cast<int>(i));
  made.place();
  return made;
}

int Fabric::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

/// Sets the group of every node at each level. A switch represents all levels from its own height
/// to just below its parent's, so that branches of different depth are comparable.
void Fabric::place() {
  const std::vector<SlurmTopology::Group>& groups = topology_.groups;
  std::vector<int> lowest(nodes_.size(), -1);
  placed_by_.assign(nodes_.size(), Source::class_default);
  std::map<std::string, int, std::less<>> by_name;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    group_names_.push_back(groups[g].name);
    by_name.emplace(groups[g].name, static_cast<int>(g));
    levels_ = std::max(levels_, groups[g].height);
    for (const std::string& name : groups[g].nodes)
      if (const int node = find(name); node >= 0 && lowest[at(node)] < 0) {
        lowest[at(node)] = static_cast<int>(g);
        placed_by_[at(node)] = Source::topology_conf;
      }
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (lowest[i] >= 0 || !nodes_[i].description || nodes_[i].description->leaf.empty()) continue;
    const auto [found, is_new] =
        by_name.emplace(nodes_[i].description->leaf, static_cast<int>(group_names_.size()));
    if (is_new) group_names_.push_back(found->first);
    lowest[i] = found->second;
    placed_by_[i] = Source::description;
    levels_ = std::max(levels_, 1);
  }
  path_.assign(nodes_.size() * at(levels_), -1);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    int group = lowest[i];
    for (int level = 1; level <= levels_ && group >= 0; ++level) {
      const bool known = at(group) < groups.size();
      while (known && groups[at(group)].parent >= 0 &&
             groups[at(groups[at(group)].parent)].height <= level)
        group = groups[at(group)].parent;
      // Nothing is known above a switch that only a description names.
      if (known || level == 1) path_[i * at(levels_) + at(level - 1)] = group;
    }
  }
}

int Fabric::group(int node, int level) const noexcept {
  return level < 1 || level > levels_ ? -1 : path_[at(node) * at(levels_) + at(level - 1)];
}

const std::string& Fabric::group_name(int group) const noexcept {
  static const std::string none;
  return group < 0 || at(group) >= group_names_.size() ? none : group_names_[at(group)];
}

int Fabric::distance(int a, int b) const noexcept {
  if (a == b) return 0;
  for (int level = 1; level <= levels_; ++level)
    if (const int mine = group(a, level); mine >= 0 && mine == group(b, level)) return level;
  return levels_ + 1;
}

Source Fabric::distance_source(int a, int b) const noexcept {
  return std::max(placed_by_[at(a)], placed_by_[at(b)], [](Source x, Source y) {
    const auto rank = [](Source s) {
      return s == Source::class_default ? 2 : s == Source::description ? 1 : 0;
    };
    return rank(x) < rank(y);
  });
}

std::string distance_name(const Fabric& fabric, int distance) {
  const bool blocks = fabric.topology().kind == SlurmTopology::Kind::block;
  if (distance == 0) return "same node";
  if (distance > fabric.levels()) return fabric.levels() == 0 ? "other node" : "across";
  if (distance == 1) return blocks ? "same block" : "same switch";
  return blocks ? fmt::format("same block of level {}", distance)
                : fmt::format("{} switch levels up", distance);
}

std::vector<std::vector<int>> groups_of(const Fabric& fabric, int level) {
  std::map<int, std::vector<int>> found;
  for (int node = 0; node < fabric.size(); ++node)
    if (const int mine = fabric.group(node, level); mine >= 0) found[mine].push_back(node);
  std::vector<std::vector<int>> result;
  for (auto& [ignored, nodes] : found) result.push_back(std::move(nodes));
  return result;
}

double Fabric::network(int node) const noexcept {
  const auto& description = nodes_[at(node)].description;
  return description ? description->network_bytes_per_s() : 0;
}

double Fabric::network_or_default(int node) const noexcept {
  const double published = network(node);
  return published > 0 ? published : kDefaultNetwork;
}

/// Returns the bandwidth of the port that a GPU uses: GPUs share the ports nearest to them. If no
/// port lists the GPU as near, returns the slowest port of the node.
double Fabric::nearest_port(GpuRef gpu) const noexcept {
  const auto& description = nodes_[at(gpu.node)].description;
  if (!description) return 0;
  double best = 0, slowest = std::numeric_limits<double>::infinity();
  for (const PortDescription& port : description->ports) {
    if (port.bytes_per_s <= 0) continue;
    slowest = std::min(slowest, port.bytes_per_s);
    if (std::find(port.nearest_gpus.begin(), port.nearest_gpus.end(), gpu.index) !=
        port.nearest_gpus.end())
      best = std::max(best, port.bytes_per_s);
  }
  if (best > 0) return best;
  return slowest < std::numeric_limits<double>::infinity() ? slowest : 0;
}

Figure Fabric::network_between(int a, int b, double ports, bool published) const {
  const auto pair =
      calibration_.pairs.empty()
          ? calibration_.pairs.end()
          : calibration_.pairs.find(std::minmax(nodes_[at(a)].name, nodes_[at(b)].name));
  if (pair != calibration_.pairs.end()) return {pair->second, Source::measured};
  const int far = distance(a, b);
  // The figure of a class comes from some of its pairs only. A pair with slower ports does not
  // reach it.
  const MeasuredClass* measured = calibration_.find(far);
  if (measured != nullptr && !(published && ports < measured->bytes_per_s))
    return {measured->bytes_per_s, Source::measured};
  const double share = measured != nullptr || levels_ == 0 ? 1.0 : assumed_share(far);
  return {ports * share, published ? Source::description : Source::class_default};
}

Figure Fabric::bandwidth(int a, int b) const {
  if (a == b) {
    const FabricNode& node = nodes_[at(a)];
    Figure slowest{std::numeric_limits<double>::infinity(), Source::class_default};
    const int count = node.description ? static_cast<int>(node.description->gpus.size()) : 0;
    for (int i = 0; i < count; ++i)
      for (int j = i + 1; j < count; ++j)
        if (const Figure link = bandwidth({a, i}, {a, j}); link.bytes_per_s < slowest.bytes_per_s)
          slowest = link;
    return count > 1 ? slowest : bandwidth(GpuRef{a, 0}, GpuRef{a, 1});
  }
  return network_between(a, b, std::min(network_or_default(a), network_or_default(b)),
                         network(a) > 0 && network(b) > 0);
}

Figure Fabric::bandwidth(GpuRef a, GpuRef b) const {
  if (a.node != b.node) {
    const double mine = nearest_port(a), theirs = nearest_port(b);
    return network_between(
        a.node, b.node,
        std::min(mine > 0 ? mine : kDefaultNetwork, theirs > 0 ? theirs : kDefaultNetwork),
        mine > 0 && theirs > 0);
  }
  const FabricNode& node = nodes_[at(a.node)];
  if (node.description && at(std::max(a.index, b.index)) < node.description->gpus.size())
    if (const GpuLink link = node.description->link(a.index, b.index); link.bytes_per_s > 0)
      return {link.bytes_per_s, Source::description};
  const auto type = find_gpu_type(node.gpu_type);
  return {type ? type->link_bytes_per_s : kDefaultLink, Source::class_default};
}

Nearness::Nearness(const Fabric& fabric, const std::vector<int>& nodes)
    : fabric_(fabric), nodes_(nodes) {
  const auto tidy = [](std::vector<int>& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  std::erase_if(nodes_, [](int node) { return node < 0; });
  tidy(nodes_);
  for (int level = 1; level <= fabric.levels(); ++level) {
    std::vector<int>& groups = groups_.emplace_back();
    for (const int node : nodes_)
      if (const int group = fabric.group(node, level); group >= 0) groups.push_back(group);
    tidy(groups);
  }
}

int Nearness::distance(int node) const noexcept {
  if (node < 0) return fabric_.levels() + 1;
  if (std::binary_search(nodes_.begin(), nodes_.end(), node)) return 0;
  for (int level = 1; level <= fabric_.levels(); ++level)
    if (const int group = fabric_.group(node, level);
        group >= 0 &&
        std::binary_search(groups_[at(level - 1)].begin(), groups_[at(level - 1)].end(), group))
      return level;
  return fabric_.levels() + 1;
}

}  // namespace swell::cluster
