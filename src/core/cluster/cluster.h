// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cluster/gpu_type.h"
#include "core/json.h"
#include "core/result.h"

namespace swell::cluster {

/// At most this many GPUs on one node: a set of them is one 64-bit mask.
inline constexpr int kMaxGpusPerNode = 64;

/// One machine. Its GPUs may be of several types; `gpus` holds the type of each by its index.
struct Node {
  std::string name;
  int rack = 0;
  std::vector<int> gpus;           ///< indexes into Cluster::types, by GPU index on the node
  double network_bytes_per_s = 0;  ///< all its network cards together, one direction
  int network_cards = 0;           ///< that share it evenly; 0: one for each GPU
  double link_bytes_per_s = 0;  ///< between its GPUs, where it is not that of their type; 0: it is
};

/// One GPU, by position.
struct GpuRef {
  int node = 0;   ///< index into Cluster::nodes
  int index = 0;  ///< on that node
  friend auto operator<=>(const GpuRef&, const GpuRef&) = default;
};

/// Bandwidth by how far apart two nodes are, for clusters of more than racks: nodes meet in a group
/// of some level (1: one switch; 2: what is above it; ...) or nowhere.
struct DistanceClasses {
  /// By node: its group of each level, lowest first; -1: in none.
  std::vector<std::vector<int>> groups;
  /// Of the nodes' network, by level, last: for nodes that meet nowhere.
  std::vector<double> share;
  std::vector<double> measured_bytes_per_s;  ///< the same, where it was measured; 0: it was not
  friend bool operator==(const DistanceClasses&, const DistanceClasses&) = default;
};

/// Nodes, their GPUs, and how fast they reach each other. Made from JSON, a preset, or what the
/// nodes publish; read by the performance model, the planner and the judge. Immutable once made,
/// hence safe to share between threads.
class Cluster {
 public:
  /// What is wrong in the description is named: no nodes, an unknown type, a bandwidth of 0, ...
  /// A node whose link is not that of its GPUs' type gets a variant of the type with that link:
  /// another index, the same name. `cross_rack_factor`: share of the network bandwidth left between
  /// racks, above 0, at most 1. `measured`: calibrated bandwidths between two nodes, bytes a
  /// second, which override the rest.
  static Result<Cluster> make(std::string name, std::vector<GpuType> types, std::vector<Node> nodes,
                              double cross_rack_factor = 1.0,
                              std::map<std::pair<int, int>, double> measured = {});

  /// The same cluster with bandwidths between nodes by distance, in place of rack and cross-rack
  /// factor. As many groups as nodes, each of as many levels; one share and measured figure more
  /// than levels. A measured class counts as far as both nodes' own network permits.
  Result<Cluster> with_classes(DistanceClasses classes) &&;

  /// From the JSON form of docs/planner.md; `name` is used where the text gives none.
  static Result<Cluster> from_json(const Json& json);
  Json to_json() const;

  const std::string& name() const noexcept { return name_; }
  const std::vector<GpuType>& types() const noexcept { return types_; }
  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  const Node& node(int index) const noexcept { return nodes_[static_cast<std::size_t>(index)]; }
  const GpuType& type(int index) const noexcept { return types_[static_cast<std::size_t>(index)]; }
  int type_of(GpuRef gpu) const noexcept {
    return node(gpu.node).gpus[static_cast<std::size_t>(gpu.index)];
  }
  std::optional<int> find_node(std::string_view name) const;
  std::optional<int> find_type(std::string_view name) const;
  int gpu_count() const noexcept { return gpu_count_; }
  double cross_rack_factor() const noexcept { return cross_rack_factor_; }

  /// Bytes a second, one direction, between two nodes: all their network cards together; between
  /// racks times the cross-rack factor; or what was measured. Within a node: the slowest link of
  /// its GPUs. Suika's k_bw.
  double node_bandwidth(int a, int b) const noexcept;
  /// Bytes a second that `gpus` GPUs of a node can bring onto the network together: a card each, or
  /// what cards there are.
  double network_reach(int node, int gpus) const noexcept;
  /// The same between two nodes for so many GPUs of each. All of them: node_bandwidth().
  double network_bandwidth(int a, int gpus_a, int b, int gpus_b) const noexcept;
  /// Bytes a second between two different GPUs: their node's link, or a card of each of their
  /// nodes. Suika's EffectiveBandwidth.
  double effective_bandwidth(GpuRef a, GpuRef b) const noexcept;
  /// Whether bandwidth depends on node and rack alone, with nothing measured and no classes.
  bool is_regular() const noexcept { return measured_.empty() && classes_.share.empty(); }

 private:
  Cluster() = default;
  double between(int a, int b, double network, bool all_cards) const noexcept;
  std::string name_;
  std::vector<GpuType> types_;
  std::vector<Node> nodes_;
  std::vector<double> slowest_link_;  ///< by node
  std::map<std::string, int, std::less<>> node_by_name_;
  std::map<std::pair<int, int>, double> measured_;
  DistanceClasses classes_;  ///< without shares: there are none
  double cross_rack_factor_ = 1.0;
  int gpu_count_ = 0;
};

}  // namespace swell::cluster
