// SPDX-License-Identifier: GPL-2.0-or-later
// Conversion of the fabric to the planner's Cluster: one figure for each distance, so that its size
// does not grow with the number of pairs.
#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "core/cluster/fabric.h"

namespace swell::cluster {

namespace {

class TypeTable {
 public:
  TypeTable(const std::vector<GpuType>& given, bool keep_unknown)
      : given_(given), keep_unknown_(keep_unknown) {}

  Result<int> index(const std::string& name) {
    for (std::size_t i = 0; i < used_.size(); ++i)
      if (used_[i].name == name) return static_cast<int>(i);
    const auto own = std::find_if(given_.begin(), given_.end(),
                                  [&](const GpuType& type) { return type.name == name; });
    const auto known = own != given_.end() ? std::optional<GpuType>(*own) : find_gpu_type(name);
    if (!known && keep_unknown_ && name != kUnknownGpu) return index(kUnknownGpu);
    if (!known && keep_unknown_) {
      used_.push_back(gpu_catalogue().front());
      used_.back().name = name;
      return static_cast<int>(used_.size()) - 1;
    }
    if (!known)
      return Error(fmt::format("GPU type \"{}\" is not in the catalogue; describe it", name));
    used_.push_back(*known);
    used_.back().name = name;
    return static_cast<int>(used_.size()) - 1;
  }
  std::vector<GpuType> take() { return std::move(used_); }

 private:
  const std::vector<GpuType>& given_;
  const bool keep_unknown_;
  std::vector<GpuType> used_;
};

}  // namespace

Result<Cluster> Fabric::to_cluster(std::string name, const std::vector<GpuType>& types) const {
  std::vector<int> all(nodes_.size());
  std::iota(all.begin(), all.end(), 0);
  return make_cluster(std::move(name), types, all, false);
}

Result<Cluster> Fabric::to_cluster_of(const std::vector<int>& which) const {
  return make_cluster("live", {}, which, true);
}

Result<Cluster> Fabric::make_cluster(std::string name, const std::vector<GpuType>& types,
                                     const std::vector<int>& which, bool keep_all) const {
  TypeTable table(types, keep_all);
  std::vector<Node> nodes;
  DistanceClasses classes;
  std::vector<int> index_of(nodes_.size(), -1);
  for (const int i : which) {
    const FabricNode& from = node(i);
    const int published = from.description ? static_cast<int>(from.description->gpus.size()) : 0;
    int count = std::min(std::max(from.gpus, from.gpus > 0 ? 0 : published), kMaxGpusPerNode);
    if (count == 0 && !keep_all) continue;
    const bool has_none = count == 0;
    count = std::max(count, 1);
    Node made;
    made.name = from.name;
    // A node without a known leaf group gets a rack of its own.
    made.rack = levels_ == 0       ? 0
                : group(i, 1) >= 0 ? group(i, 1)
                                   : static_cast<int>(group_names_.size()) + i;
    for (int gpu = 0; gpu < count; ++gpu) {
      std::string type = has_none ? kUnknownGpu : from.gpu_type;
      if (gpu < published &&
          (type.empty() || !from.description->gpus[static_cast<std::size_t>(gpu)].type.empty()))
        type = from.description->gpus[static_cast<std::size_t>(gpu)].type;
      auto index = table.index(type);
      if (!index) return index.error().while_doing("node " + from.name);
      made.gpus.push_back(*index);
    }
    made.network_bytes_per_s = network_or_default(i);
    if (network(i) > 0)
      made.network_cards = static_cast<int>(
          std::count_if(from.description->ports.begin(), from.description->ports.end(),
                        [](const PortDescription& port) { return port.bytes_per_s > 0; }));
    if (const Figure link = bandwidth(i, i); count > 1 && link.source == Source::description)
      made.link_bytes_per_s = link.bytes_per_s;
    std::vector<int> groups;
    for (int level = 1; level <= levels_; ++level) groups.push_back(group(i, level));
    classes.groups.push_back(std::move(groups));
    index_of[static_cast<std::size_t>(i)] = static_cast<int>(nodes.size());
    nodes.push_back(std::move(made));
  }
  bool measured = false;
  for (int distance = 1; distance <= levels_ + 1; ++distance) {
    classes.share.push_back(levels_ == 0 ? 1.0 : assumed_share(distance));
    const MeasuredClass* figures = calibration_.find(distance);
    classes.measured_bytes_per_s.push_back(figures != nullptr ? figures->bytes_per_s : 0);
    measured |= figures != nullptr;
  }
  Interconnect interconnect{.cross_rack_factor = levels_ == 0 ? 1.0 : assumed_share(2),
                            .devices_apart = devices_apart_};
  for (const auto& [names, rate] : calibration_.pairs) {
    const int a = find(names.first), b = find(names.second);
    if (a < 0 || b < 0 || a == b) continue;
    const int left = index_of[static_cast<std::size_t>(a)],
              right = index_of[static_cast<std::size_t>(b)];
    if (left >= 0 && right >= 0) interconnect.measured[{left, right}] = rate;
  }
  if (levels_ > 1 || measured) interconnect.classes = std::move(classes);
  return Cluster::make(std::move(name), table.take(), std::move(nodes), std::move(interconnect));
}

}  // namespace swell::cluster
