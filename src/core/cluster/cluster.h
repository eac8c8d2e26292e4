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

/// Maximum number of GPUs on one node: a set of them is one 64-bit mask.
inline constexpr int kMaxGpusPerNode = 64;

/// One machine. Its GPUs may have several types: `gpus` has the type index of each.
struct Node {
  std::string name;
  int rack = 0;
  std::vector<int> gpus;           ///< indexes into Cluster::types, by GPU index on the node
  double network_bytes_per_s = 0;  ///< all network cards together, one direction
  int network_cards = 0;           ///< cards that share that bandwidth evenly; 0: one for each GPU
  /// Bandwidth between its GPUs; 0: the bandwidth of their type.
  double link_bytes_per_s = 0;
};

/// Position of one GPU. `part` says which of the job's allocations it belongs to, if this matters
/// (plan/allocations.h).
struct GpuRef {
  int node = 0;   ///< index into Cluster::nodes
  int index = 0;  ///< index of the GPU on that node
  int part = 0;   ///< number of the job's allocation on that node
  friend auto operator<=>(const GpuRef&, const GpuRef&) = default;
};

/// Bandwidth by the distance between two nodes, for clusters with more levels than racks. Two nodes
/// have a common group at some level (1: one switch; 2: the group above it; ...) or none.
struct DistanceClasses {
  /// Group of each node at each level, lowest first; -1: none at that level.
  std::vector<std::vector<int>> groups;
  /// Remaining share of the nodes' network bandwidth, by the lowest level with a common group. The
  /// last entry is for nodes without one.
  std::vector<double> share;
  /// Measured bytes a second, with the same indexes as `share`; 0: not measured.
  std::vector<double> measured_bytes_per_s;
  friend bool operator==(const DistanceClasses&, const DistanceClasses&) = default;
};

/// Bandwidth between nodes and between allocations, beyond the network cards of each node.
struct Interconnect {
  double cross_rack_factor = 1.0;  ///< share of bandwidth left between racks; above 0, at most 1
  /// Calibrated bandwidths between two nodes, in bytes a second. They override all others.
  std::map<std::pair<int, int>, double> measured{};
  /// Unless empty, replaces racks and their factor. `groups` has one list for each node, all of one
  /// length (the number of levels); the other two lists have one entry more than there are levels.
  /// A measured figure is capped by both nodes' own network.
  DistanceClasses classes{};
  /// Whether two allocations of one job on a node reach each other's GPUs only over the network,
  /// because Slurm constrains devices (ConstrainDevices=yes). No TP group then spans both.
  bool devices_apart = false;
  /// Returns whether bandwidth depends only on node and rack.
  bool is_regular() const noexcept { return measured.empty() && classes.share.empty(); }
};

/// Returns the bytes a second that `gpus` GPUs of a node can together send to the network. Each
/// uses one card if there are enough cards.
double network_reach(const Node& node, int gpus) noexcept;

/// Nodes, their GPUs, and the bandwidth between them. Made from JSON, a preset, or the nodes'
/// published descriptions; read by the performance model, the planner and the judge. Immutable,
/// hence safe to share between threads.
class Cluster {
 public:
  /// Checks the arguments and makes a cluster. The error names the fault: no nodes, an unknown
  /// type, a bandwidth of 0, ... If a node's link differs from its GPUs' type, it gets a variant of
  /// the type with that link: another index, the same name.
  static Result<Cluster> make(std::string name, std::vector<GpuType> types, std::vector<Node> nodes,
                              Interconnect interconnect = {});

  /// Reads the JSON form of docs/planner.md. `name` is used if the text has no name.
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
  int gpu_count() const noexcept { return gpu_count_; }
  const Interconnect& interconnect() const noexcept { return interconnect_; }

  /// Returns the bytes a second in one direction between two nodes, Suika's k_bw: the measured
  /// figure if there is one; else all their network cards together, times the cross-rack factor if
  /// they are in two racks. For a == b: the slowest link of the node's GPUs.
  double node_bandwidth(int a, int b) const noexcept;
  /// Returns the bytes a second between two nodes when only `gpus_a` and `gpus_b` of their GPUs
  /// send. Equals node_bandwidth() if all GPUs send. For a == b: the bandwidth between two
  /// allocations of the node that do not share devices, through its network cards.
  double network_bandwidth(int a, int gpus_a, int b, int gpus_b) const noexcept;
  /// Returns the bytes a second between two different GPUs, Suika's EffectiveBandwidth: their
  /// node's link, or one network card of each if they are on two nodes or in two allocations.
  double effective_bandwidth(GpuRef a, GpuRef b) const noexcept;

 private:
  Cluster() = default;
  double between(int a, int b, double network, bool all_cards) const noexcept;
  std::string name_;
  std::vector<GpuType> types_;
  std::vector<Node> nodes_;
  std::vector<double> slowest_link_;  ///< slowest GPU link of each node
  std::map<std::string, int, std::less<>> node_by_name_;
  Interconnect interconnect_;
  int gpu_count_ = 0;
};

/// Returns the index of the first type of that name.
std::optional<int> find_type(const Cluster& cluster, std::string_view name);

}  // namespace swell::cluster
