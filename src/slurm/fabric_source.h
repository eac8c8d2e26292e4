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

/// The cluster's fabric from Slurm's records and files: the only source of it for the controller,
/// the select plugin and `swell topo`.
namespace swell::slurm {

/// Paths of the files that, besides the data published by nodes, make up a fabric; empty: not used.
struct FabricFiles {
  std::string topology_conf, calibration;
  /// Whether Slurm itself gives jobs a shape (segments of blocks, arcs of rings, boxes of tori), or
  /// reads a topology.yaml, which may do so for a partition; then its choice of nodes must not be
  /// narrowed.
  bool slurm_shapes_jobs = false;
  bool devices_apart = false;  ///< see devices_apart()
};

/// Finds the files by slurmctld's configuration: topology.conf if TopologyPlugin uses it, and
/// swell_calibration.json in the folder of slurm.conf. One RPC to slurmctld.
Result<FabricFiles> find_fabric_files();

/// Returns nodes with their descriptions; node i is nodes[i]. Adds to `notes` a sentence for each
/// description that cannot be read, or for a few of them if there are many.
std::vector<cluster::FabricNode> fabric_nodes(const std::vector<NodeRecord>& nodes,
                                              std::vector<std::string>& notes);

/// A fabric, and a sentence for each part that could not be read and was left out.
struct KnownFabric {
  cluster::Fabric fabric;
  std::vector<std::string> notes;
  bool slurm_shapes_jobs = false;  ///< as in FabricFiles; true while it is not known
};

/// Returns whether Slurm lets a job's processes open only the GPUs of their own allocation:
/// TaskPlugin has task/cgroup, and cgroup.conf, or the configuration that slurmctld reports, has
/// ConstrainDevices=yes.
bool devices_apart(std::string_view task_plugin, std::string_view cgroup_conf);

/// Returns whether Slurm itself shapes jobs under this TopologyPlugin ("topology/ring"), with
/// slurm.conf in `folder` ("/etc/slurm/").
bool shapes_jobs(std::string_view topology_plugin, const std::string& folder);

/// Cache of the fabric, rebuilt only if the files or the data published by nodes have changed:
/// reading thousands of descriptions at each start of a job would be too slow. One thread at a
/// time.
class FabricSource {
 public:
  using Find = std::function<Result<FabricFiles>()>;
  /// `find` null: no file is read.
  explicit FabricSource(Find find) : find_(std::move(find)) {}

  /// Returns the present fabric, never null; the same object as before if nothing has changed.
  /// Checks the files at most once a minute, by `now`.
  std::shared_ptr<const KnownFabric> update(const std::vector<NodeRecord>& nodes, std::time_t now);

 private:
  bool files_changed(std::time_t now);

  const Find find_;
  FabricFiles files_;
  std::optional<Error> cannot_find_;
  std::shared_ptr<const KnownFabric> known_;
  std::optional<std::time_t> looked_;
  /// Hashes of the data published by nodes, and of the files.
  std::size_t nodes_print_ = 0, files_print_ = 0;
};

}  // namespace swell::slurm
