// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cluster/calibration.h"
#include "core/cluster/cluster.h"
#include "core/cluster/node_description.h"
#include "core/cluster/slurm_topology.h"

namespace swell::cluster {

/// A Slurm node with the description that it publishes.
struct FabricNode {
  std::string name;
  std::string gpu_type;  ///< type of its GPUs in Slurm; empty: no type given
  int gpus = 0;          ///< number of GPUs in Slurm
  std::optional<NodeDescription> description;
};

/// Origin of a figure, most trusted first.
enum class Source { measured, description, topology_conf, class_default };
const char* to_text(Source source) noexcept;

/// A bandwidth in bytes a second, one direction, and its origin.
struct Figure {
  double bytes_per_s = 0;
  Source source = Source::class_default;
};

/// Type of GPUs that nothing is known about, in Fabric::to_cluster_of().
inline constexpr const char* kUnknownGpu = "unknown";

/// Distances and bandwidths between nodes and their GPUs: common switches or blocks, and the speed
/// of the links. Built from the nodes' published descriptions, Slurm's topology.conf and a
/// calibration. Each of these may be missing; the results are then coarser. Immutable, hence safe
/// to share between threads. Memory and building time grow with the number of nodes, not of their
/// pairs; every query about two nodes takes constant time.
class Fabric {
 public:
  /// Builds the fabric; index i in all other functions is nodes[i]. If two nodes have the same
  /// name, find() returns the first. topology.conf gives the position of a node. A node that it
  /// does not name is under the switch that the node publishes, which topology.conf may also have.
  static Fabric make(std::vector<FabricNode> nodes, SlurmTopology topology = {},
                     Calibration calibration = {});

  /// Sets whether Slurm constrains devices to allocations, for the clusters made from the fabric.
  void set_devices_apart(bool apart) noexcept { devices_apart_ = apart; }

  int size() const noexcept { return static_cast<int>(nodes_.size()); }
  const FabricNode& node(int index) const noexcept {
    return nodes_[static_cast<std::size_t>(index)];
  }
  /// Returns the index of the node called `name`; -1 if there is none.
  int find(std::string_view name) const noexcept;

  /// Returns the number of known levels of groups: 0 if nothing tells nodes apart, 1 with leaf
  /// switches or blocks only, ...
  int levels() const noexcept { return levels_; }
  /// Returns the distance of two nodes. 0: the same node; d: their lowest common group has level d
  /// (1: leaf switch or block, 2: the group above that, ...); levels() + 1: no common group is
  /// known. Always a metric; a node of unknown position is farthest from all others.
  int distance(int a, int b) const noexcept;
  /// Returns the origin of distance(a, b): topology.conf, a description, or class_default if
  /// neither has it.
  Source distance_source(int a, int b) const noexcept;

  /// Returns the group of a node at a level from 1 to levels(); -1: not known. Two nodes are in one
  /// group if the numbers are equal.
  int group(int node, int level) const noexcept;
  /// Returns the name of the switch or block `group`; empty for -1.
  const std::string& group_name(int group) const noexcept;

  /// Returns the bandwidth between two nodes over all their ports; for a == b, the slowest link of
  /// its GPUs.
  Figure bandwidth(int a, int b) const;
  /// Returns the bandwidth between two GPUs: their link within a node; otherwise the minimum of the
  /// ports nearest to them and of the path between the nodes.
  Figure bandwidth(GpuRef a, GpuRef b) const;

  const Calibration& calibration() const noexcept { return calibration_; }
  const SlurmTopology& topology() const noexcept { return topology_; }

  /// Returns the fabric as the planner's Cluster, without nodes that have no GPUs. Racks are the
  /// leaf groups. GPU types that are not in the catalogue are looked up in `types`; the error names
  /// a type that is in neither.
  Result<Cluster> to_cluster(std::string name, const std::vector<GpuType>& types = {}) const;
  /// Returns the cluster of only the nodes `which`, for a policy's view: its node i is which[i]. A
  /// node without GPUs gets one GPU of type kUnknownGpu, and GPUs of an undescribed type get this
  /// type: no plan may use them.
  Result<Cluster> to_cluster_of(const std::vector<int>& which) const;

 private:
  Result<Cluster> make_cluster(std::string name, const std::vector<GpuType>& types,
                               const std::vector<int>& which, bool keep_all) const;
  void place();
  double network(int node) const noexcept;
  double network_or_default(int node) const noexcept;
  double nearest_port(GpuRef gpu) const noexcept;
  Figure network_between(int a, int b, double ports, bool published) const;

  std::vector<FabricNode> nodes_;
  SlurmTopology topology_;
  Calibration calibration_;
  std::map<std::string, int, std::less<>> by_name_;
  std::vector<std::string> group_names_;
  /// Groups of each node: levels() entries each, lowest level first.
  std::vector<int> path_;
  std::vector<Source> placed_by_;  ///< origin of each node's position
  int levels_ = 0;
  bool devices_apart_ = false;
};

/// Returns the share of the ports' bandwidth assumed over a distance without measurements.
inline double assumed_share(int distance) noexcept { return distance <= 1 ? 1.0 : 0.5; }

/// Returns the name of a distance for people: "same node", "same switch", "same block", "2 levels
/// up", "across".
std::string distance_name(const Fabric& fabric, int distance);

/// Returns the nodes of each group of a level, by rising index. Leaves out nodes without a known
/// group.
std::vector<std::vector<int>> groups_of(const Fabric& fabric, int level);

/// Computes the distance from any node to the nearest one of a set, each in constant time: ranks
/// all nodes of a cluster by their nearness to a job's nodes.
class Nearness {
 public:
  Nearness(const Fabric& fabric, const std::vector<int>& nodes);
  int distance(int node) const noexcept;

 private:
  const Fabric& fabric_;
  std::vector<int> nodes_;                ///< by rising index
  std::vector<std::vector<int>> groups_;  ///< groups of `nodes_`, by level, rising
};

}  // namespace swell::cluster
