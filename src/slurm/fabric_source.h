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

/// What is near what, from what Slurm's records and files say: the one place where the controller,
/// the select plugin and `swell topo` get it from.
namespace swell::slurm {

/// Files that a fabric is made of beside what nodes publish; empty: there is none that counts.
struct FabricFiles {
  std::string topology_conf, calibration;
  /// Slurm gives jobs a shape itself (segments of blocks, arcs of rings, boxes of tori), or reads a
  /// topology.yaml, which may say so of a partition: its choice of nodes is not to be narrowed.
  bool slurm_shapes_jobs = false;
};

/// As slurmctld is configured: topology.conf where TopologyPlugin uses it, and
/// swell_calibration.json beside slurm.conf. An RPC to slurmctld.
Result<FabricFiles> find_fabric_files();

/// Node i is nodes[i]. `notes`: of each description that cannot be read a sentence, of many a few.
std::vector<cluster::FabricNode> fabric_nodes(const std::vector<NodeRecord>& nodes,
                                              std::vector<std::string>& notes);

/// A fabric, and what could not be read for it and was left out, a sentence each.
struct KnownFabric {
  cluster::Fabric fabric;
  std::vector<std::string> notes;
  bool slurm_shapes_jobs = false;  ///< of FabricFiles; true while that is not known
};

/// Does Slurm shape jobs itself under this TopologyPlugin ("topology/ring"), with slurm.conf in
/// `folder` ("/etc/slurm/")?
bool shapes_jobs(std::string_view topology_plugin, const std::string& folder);

/// Makes the fabric anew only where what nodes publish or the files changed: reading thousands of
/// descriptions whenever a job starts would cost more than all else. One thread at a time.
class FabricSource {
 public:
  using Find = std::function<Result<FabricFiles>()>;
  /// `find` null: no file is read.
  explicit FabricSource(Find find) : find_(std::move(find)) {}

  /// Never null; the same object as before where nothing changed. `now`: files are looked at once a
  /// minute.
  std::shared_ptr<const KnownFabric> update(const std::vector<NodeRecord>& nodes, std::time_t now);

 private:
  bool files_changed(std::time_t now);

  const Find find_;
  FabricFiles files_;
  std::optional<Error> cannot_find_;
  std::shared_ptr<const KnownFabric> known_;
  std::optional<std::time_t> looked_;
  std::size_t nodes_print_ = 0, files_print_ = 0;  ///< change with what they are of
};

}  // namespace swell::slurm
