// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/cluster/fabric.h"
#include "slurm/records.h"

namespace swell::controller {

/// The cluster's Fabric, made anew only where what nodes published or the files changed: reading thousands of
/// descriptions each round would cost more than the round. One thread at a time.
class FabricCache {
 public:
  /// `folder` has Slurm's topology.conf and swell_calibration.json, where there are any; empty: neither is read.
  FabricCache(std::string folder, std::function<void(const std::string&)> log) : folder_(std::move(folder)), log_(std::move(log)) {}

  /// Node i is snapshot.nodes[i]. Faults of descriptions and files are logged once, and passed over.
  std::shared_ptr<const cluster::Fabric> get(const slurm::Snapshot& snapshot);

 private:
  bool files_changed();
  bool nodes_changed(const slurm::Snapshot& snapshot) const;
  std::string read(const char* name) const;

  std::string folder_;
  std::function<void(const std::string&)> log_;
  std::shared_ptr<const cluster::Fabric> fabric_;
  std::vector<std::pair<std::string, std::string>> seen_;  ///< name and Extra of each node
  std::time_t looked_ = 0;
  std::vector<std::pair<std::time_t, long>> stamps_;       ///< when the files changed, and their sizes
};

}  // namespace swell::controller
