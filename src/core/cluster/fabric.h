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

/// One node as Slurm has it, with what it publishes.
struct FabricNode {
  std::string name;
  std::string gpu_type;  ///< Slurm's type of its GPUs; empty: not named
  int gpus = 0;          ///< by Slurm's count
  std::optional<NodeDescription> description;
};

/// Where a figure came from, best first.
enum class Source { measured, description, topology_conf, class_default };
const char* to_text(Source source) noexcept;

/// A bandwidth, bytes a second, one direction.
struct Figure {
  double bytes_per_s = 0;
  Source source = Source::class_default;
};

/// What is near what: nodes under switches or in blocks, and how fast they and their GPUs reach
/// each other. Built from what nodes publish, Slurm's topology.conf and a calibration; each may be
/// missing, and then the answers are coarser. Immutable once made, hence safe to share between
/// threads. Memory and building time grow with the nodes, not with their pairs; every question
/// about two nodes takes constant time.
class Fabric {
 public:
  /// `nodes` keep their order: index i below is nodes[i]. Of two nodes with one name the first is
  /// found. topology.conf decides where a node is; a node that it does not name stands under the
  /// switch that the node publishes, which may be one of topology.conf's.
  static Fabric make(std::vector<FabricNode> nodes, SlurmTopology topology = {},
                     Calibration calibration = {});

  int size() const noexcept { return static_cast<int>(nodes_.size()); }
  const FabricNode& node(int index) const noexcept {
    return nodes_[static_cast<std::size_t>(index)];
  }
  /// -1 where there is none of that name.
  int find(std::string_view name) const noexcept;

  /// Levels of groups known: 0 where nothing tells nodes apart, 1 with leaf switches or blocks
  /// alone, ...
  int levels() const noexcept { return levels_; }
  /// 0: the same node; d: they meet in a group of level d (1: one leaf switch or block, 2: what is
  /// above that, ...); levels() + 1: nowhere that is known. A metric that never fails: nodes about
  /// which nothing is known are farthest from all.
  int distance(int a, int b) const noexcept;
  /// Whether topology.conf, a description, or neither (class_default) says so.
  Source distance_source(int a, int b) const noexcept;
  /// For people: "same node", "same switch", "same block", "2 levels up", "across".
  std::string class_name(int distance) const;

  /// The group of a node at a level from 1 to levels(); -1: not known. Nodes of one group have
  /// equal numbers.
  int group(int node, int level) const noexcept;
  /// Its name: of a switch or block; empty for -1.
  const std::string& group_name(int group) const noexcept;
  /// The nodes of each group of a level, nodes rising. Nodes without a known group are left out.
  std::vector<std::vector<int>> groups(int level) const;
  /// How many leaf switches (or blocks) the nodes are under; a node whose switch is not known
  /// counts as one of its own, unless nothing is known of any node: then all are under one.
  int switches_spanned(const std::vector<int>& nodes) const;

  /// Between two nodes, all their ports together; within one, the slowest link of its GPUs.
  Figure bandwidth(int a, int b) const;
  /// Between two GPUs: their link in the node, or the ports nearest to them and the way between the
  /// nodes.
  Figure bandwidth(GpuRef a, GpuRef b) const;
  /// The share of the ports' bandwidth that is assumed to be left over a distance where none was
  /// measured.
  static double assumed_share(int distance) noexcept;

  const Calibration& calibration() const noexcept { return calibration_; }
  const SlurmTopology& topology() const noexcept { return topology_; }

  /// As the planner takes it: nodes without GPUs left out, racks from the leaf groups. Types that
  /// the catalogue does not have are looked for in `types`; the error names one that is in neither.
  Result<Cluster> to_cluster(std::string name, const std::vector<GpuType>& types = {}) const;

 private:
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
  std::vector<int> path_;          ///< levels_ groups a node, lowest level first
  std::vector<Source> placed_by_;  ///< by node
  int levels_ = 0;
};

/// The distance from any node to the nearest of some nodes, each in constant time: for ranking all
/// nodes of a cluster by their nearness to one job's.
class Nearness {
 public:
  Nearness(const Fabric& fabric, const std::vector<int>& nodes);
  int distance(int node) const noexcept;

 private:
  const Fabric& fabric_;
  std::vector<int> nodes_;                ///< rising
  std::vector<std::vector<int>> groups_;  ///< by level, rising
};

}  // namespace swell::cluster
