// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
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

/// Limit of GPUs on one node: a set of them is one 64-bit mask.
inline constexpr int kMaxGpusPerNode = 64;

/// One machine. Its GPUs may be of several types; `gpus` holds the type of each by its index.
struct Node {
  std::string name;
  int rack = 0;
  std::vector<int> gpus;           ///< indexes into Cluster::types, by GPU index on the node
  double network_bytes_per_s = 0;  ///< all network cards together, one direction
  int network_cards = 0;           ///< they share that bandwidth evenly; 0: one for each GPU
  /// Bandwidth between its GPUs; 0: that of their type.
  double link_bytes_per_s = 0;
};

/// One GPU, by position, and where it matters the allocation of a job that it belongs to
/// (plan/allocations.h).
struct GpuRef {
  int node = 0;   ///< index into Cluster::nodes
  int index = 0;  ///< index of the GPU on that node
  int part = 0;   ///< number of the job's allocation on that node
  friend auto operator<=>(const GpuRef&, const GpuRef&) = default;
};

/// Bandwidth by the distance between two nodes, for clusters with more levels than racks: two nodes
/// meet in a group of some level (1: one switch; 2: what is above it; ...) or nowhere.
struct DistanceClasses {
  /// Groups of each node, by level from the lowest; -1: none at that level.
  std::vector<std::vector<int>> groups;
  /// Share of the nodes' network bandwidth that is left, by the level at which they meet; the last
  /// entry is for nodes that meet nowhere.
  std::vector<double> share;
  /// Measured bytes a second, indexed as `share`; 0: not measured.
  std::vector<double> measured_bytes_per_s;
  friend bool operator==(const DistanceClasses&, const DistanceClasses&) = default;
};

/// Nodes, their GPUs, and how fast they reach each other. Made from JSON, a preset, or what the
/// nodes publish; read by the performance model, the planner and the judge. Immutable once made,
/// hence safe to share between threads.
class Cluster {
 public:
  /// Checks the description; the error names what is wrong: no nodes, an unknown type, a bandwidth
  /// of 0, ... A node whose link is not that of its GPUs' type gets a variant of the type with that
  /// link: another index, the same name. `cross_rack_factor`: share of the network bandwidth left
  /// between racks, above 0, at most 1. `measured`: calibrated bandwidths between two nodes, bytes
  /// a second, which override the rest.
  static Result<Cluster> make(std::string name, std::vector<GpuType> types, std::vector<Node> nodes,
                              double cross_rack_factor = 1.0,
                              std::map<std::pair<int, int>, double> measured = {});

  /// This cluster with bandwidths between nodes by distance, in place of rack and cross-rack
  /// factor. `classes` must have a list of groups for each node, all of one length (the number of
  /// levels), and one share and one measured figure more than levels. A measured figure is capped
  /// by both nodes' own network.
  Result<Cluster> with_classes(DistanceClasses classes) &&;

  /// This cluster, where a job's programs open only the devices of their own allocation.
  Cluster with_devices_apart(bool apart) &&;
  /// Whether two allocations of one job on a node reach each other's GPUs over the network alone,
  /// since Slurm constrains devices (ConstrainDevices=yes): no TP group is then over both.
  bool devices_apart() const noexcept { return devices_apart_; }

  /// Reads the JSON form of docs/planner.md; `name` is used where the text gives none.
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
  /// racks, that times the cross-rack factor; the measured figure where there is one. For a == b:
  /// the slowest link of the node's GPUs. Suika's k_bw.
  double node_bandwidth(int a, int b) const noexcept;
  /// Bytes a second that `gpus` GPUs of a node can send to the network together, with one card each
  /// as long as there are enough cards.
  double network_reach(int index, int gpus) const noexcept {
    const Node& from = node(index);
    const int all = static_cast<int>(from.gpus.size());
    const int cards = from.network_cards > 0 ? std::min(from.network_cards, all) : all;
    if (gpus >= cards) return from.network_bytes_per_s;
    return from.network_bytes_per_s * (static_cast<double>(gpus) / cards);
  }
  /// Bytes a second between two nodes when only `gpus_a` and `gpus_b` of their GPUs send. With all
  /// GPUs of both it equals node_bandwidth(). For a == b: between two allocations of that node that
  /// do not share devices, through its network cards.
  double network_bandwidth(int a, int gpus_a, int b, int gpus_b) const noexcept;
  /// Bytes a second between two different GPUs: their node's link, or one network card of each,
  /// where they are on two nodes or of two allocations. Suika's EffectiveBandwidth.
  double effective_bandwidth(GpuRef a, GpuRef b) const noexcept;
  /// Whether bandwidth depends on node and rack alone: nothing was measured and there are no
  /// distance classes.
  bool is_regular() const noexcept { return measured_.empty() && classes_.share.empty(); }

 private:
  Cluster() = default;
  double between(int a, int b, double network, bool all_cards) const noexcept;
  std::string name_;
  std::vector<GpuType> types_;
  std::vector<Node> nodes_;
  std::vector<double> slowest_link_;  ///< slowest GPU link of each node
  std::map<std::string, int, std::less<>> node_by_name_;
  std::map<std::pair<int, int>, double> measured_;
  DistanceClasses classes_;  ///< no classes where `share` is empty
  double cross_rack_factor_ = 1.0;
  bool devices_apart_ = false;
  int gpu_count_ = 0;
};

}  // namespace swell::cluster
