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

/// A node of Slurm's with the description that it publishes.
struct FabricNode {
  std::string name;
  std::string gpu_type;  ///< type of its GPUs in Slurm; empty: not named
  int gpus = 0;          ///< number of GPUs in Slurm
  std::optional<NodeDescription> description;
};

/// Origin of a figure, the most trusted first.
enum class Source { measured, description, topology_conf, class_default };
const char* to_text(Source source) noexcept;

/// A bandwidth in bytes a second, one direction, and where it is from.
struct Figure {
  double bytes_per_s = 0;
  Source source = Source::class_default;
};

/// The type of GPUs of which nothing is known, in Fabric::to_cluster_of().
inline constexpr const char* kUnknownGpu = "unknown";

/// Distances and bandwidths between nodes and their GPUs: which nodes share a switch or block, and
/// how fast they reach each other. Built from what nodes publish, Slurm's topology.conf and a
/// calibration; each may be missing, and then the answers are coarser. Immutable once made, hence
/// safe to share between threads. Memory and building time grow with the nodes, not with their
/// pairs; every question about two nodes takes constant time.
class Fabric {
 public:
  /// Builds the fabric; index i of every other function is nodes[i]. If two nodes have one name,
  /// find() returns the first. topology.conf decides where a node is; a node that it does not name
  /// stands under the switch that the node publishes, which may be one of topology.conf's.
  static Fabric make(std::vector<FabricNode> nodes, SlurmTopology topology = {},
                     Calibration calibration = {});

  /// Whether Slurm constrains devices to allocations; the clusters made of the fabric say it.
  void set_devices_apart(bool apart) noexcept { devices_apart_ = apart; }

  int size() const noexcept { return static_cast<int>(nodes_.size()); }
  const FabricNode& node(int index) const noexcept {
    return nodes_[static_cast<std::size_t>(index)];
  }
  /// Index of the node called `name`; -1 where there is none.
  int find(std::string_view name) const noexcept;

  /// Number of levels of groups that are known: 0 where nothing tells nodes apart, 1 with leaf
  /// switches or blocks alone, ...
  int levels() const noexcept { return levels_; }
  /// Distance of two nodes. 0: the same node; d: they meet in a group of level d (1: one leaf
  /// switch or block, 2: what is above that, ...); levels() + 1: no common group is known. Always a
  /// metric; a node of unknown position is farthest from all others.
  int distance(int a, int b) const noexcept;
  /// Origin of distance(a, b): topology.conf, a description, or class_default where neither says.
  Source distance_source(int a, int b) const noexcept;
  /// Name of a distance for people: "same node", "same switch", "same block", "2 levels up",
  /// "across".
  std::string class_name(int distance) const;

  /// Group of a node at a level from 1 to levels(); -1: not known. Two nodes are in one group where
  /// these numbers are equal.
  int group(int node, int level) const noexcept;
  /// Name of the switch or block that `group` is; empty for -1.
  const std::string& group_name(int group) const noexcept;
  /// Nodes of each group of a level, by rising index. Nodes without a known group are left out.
  std::vector<std::vector<int>> groups(int level) const;
  /// Number of leaf switches (or blocks) over `nodes`. A node whose switch is not known counts as
  /// under one of its own; where no switch of any node is known, all count as under one.
  int switches_spanned(const std::vector<int>& nodes) const;

  /// Bandwidth between two nodes, all their ports together; for a == b, the slowest link of its
  /// GPUs.
  Figure bandwidth(int a, int b) const;
  /// Bandwidth between two GPUs: their link within a node; otherwise the slowest of the ports
  /// nearest to them and the way between the nodes.
  Figure bandwidth(GpuRef a, GpuRef b) const;
  /// Share of the ports' bandwidth assumed to be left over a distance where none was measured.
  static double assumed_share(int distance) noexcept;

  const Calibration& calibration() const noexcept { return calibration_; }
  const SlurmTopology& topology() const noexcept { return topology_; }

  /// The fabric as the planner's Cluster: nodes without GPUs are left out, racks are the leaf
  /// groups. Types that the catalogue does not have are looked for in `types`; the error names one
  /// that is in neither.
  Result<Cluster> to_cluster(std::string name, const std::vector<GpuType>& types = {}) const;
  /// The same over the nodes `which` alone, node i of it being which[i]: what a policy's view
  /// needs. A node without GPUs has one of type kUnknownGpu there, and GPUs of a type that nobody
  /// describes are of that type: no plan may use them.
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
  std::vector<int> path_;          ///< groups of each node, levels_ of them, lowest level first
  std::vector<Source> placed_by_;  ///< origin of each node's position
  int levels_ = 0;
  bool devices_apart_ = false;
};

/// Distance from any node to the nearest of a set of nodes, in constant time each: ranks all nodes
/// of a cluster by their nearness to one job's.
class Nearness {
 public:
  Nearness(const Fabric& fabric, const std::vector<int>& nodes);
  int distance(int node) const noexcept;

 private:
  const Fabric& fabric_;
  std::vector<int> nodes_;                ///< by rising index
  std::vector<std::vector<int>> groups_;  ///< groups that `nodes_` are in, by level, rising
};

}  // namespace swell::cluster
