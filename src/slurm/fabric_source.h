// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/fabric.h"
#include "core/result.h"
#include "slurm/records.h"

/// The cluster's fabric from Slurm's records and files: the one source of it for the controller,
/// the select plugin and `swell topo`.
namespace swell::slurm {

/// Paths of the files that a fabric is made of besides what nodes publish; empty: none is used.
struct FabricFiles {
  std::string topology_conf, calibration;
  /// Whether Slurm gives jobs a shape itself (segments of blocks, arcs of rings, boxes of tori), or
  /// reads a topology.yaml, which may do so for a partition: then its choice of nodes must not be
  /// narrowed.
  bool slurm_shapes_jobs = false;
  bool devices_apart = false;  ///< see devices_apart()
};

/// Finds the files as slurmctld is configured: topology.conf where TopologyPlugin uses it, and
/// swell_calibration.json beside slurm.conf. One RPC to slurmctld.
Result<FabricFiles> find_fabric_files();

/// Nodes with their descriptions; node i is nodes[i]. `notes` receives a sentence for each
/// description that cannot be read; where there are many, for a few.
std::vector<cluster::FabricNode> fabric_nodes(const std::vector<NodeRecord>& nodes,
                                              std::vector<std::string>& notes);

/// A fabric, and a sentence for each part that could not be read and was left out.
struct KnownFabric {
  cluster::Fabric fabric;
  std::vector<std::string> notes;
  bool slurm_shapes_jobs = false;  ///< as in FabricFiles; true while not known
};

/// Whether Slurm lets a job's processes open the GPUs of their own allocation alone: TaskPlugin has
/// task/cgroup, and cgroup.conf, or what slurmctld prints of it, has ConstrainDevices=yes.
bool devices_apart(std::string_view task_plugin, std::string_view cgroup_conf);

/// Whether Slurm shapes jobs itself under this TopologyPlugin ("topology/ring"), with slurm.conf in
/// `folder` ("/etc/slurm/").
bool shapes_jobs(std::string_view topology_plugin, const std::string& folder);

/// Cache of the fabric, made anew only where the files or what nodes publish changed: reading
/// thousands of descriptions whenever a job starts would be too slow. One thread at a time.
class FabricSource {
 public:
  using Find = std::function<Result<FabricFiles>()>;
  /// `find` null: no file is read.
  explicit FabricSource(Find find) : find_(std::move(find)) {}

  /// The present fabric, never null; the same object as before where nothing changed. The files are
  /// checked at most once a minute, by `now`.
  std::shared_ptr<const KnownFabric> update(const std::vector<NodeRecord>& nodes, std::time_t now);

 private:
  bool files_changed(std::time_t now);

  const Find find_;
  FabricFiles files_;
  std::optional<Error> cannot_find_;
  std::shared_ptr<const KnownFabric> known_;
  std::optional<std::time_t> looked_;
  /// Hashes of what nodes publish and of the files.
  std::size_t nodes_print_ = 0, files_print_ = 0;
};

}  // namespace swell::slurm
