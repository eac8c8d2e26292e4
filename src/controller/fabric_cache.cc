// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/fabric_cache.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sys/stat.h>

namespace swell::controller {

namespace {

constexpr const char* kTopologyConf = "topology.conf";
constexpr const char* kCalibration = "swell_calibration.json";
constexpr std::time_t kLookEvery_s = 60;

}  // namespace

std::string FabricCache::read(const char* name) const {
  if (folder_.empty()) return {};
  std::ifstream in(folder_ + "/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool FabricCache::files_changed() {
  if (folder_.empty()) return false;
  std::vector<std::pair<std::time_t, long>> stamps;
  for (const char* name : {kTopologyConf, kCalibration}) {
    struct stat found {};
    if (stat((folder_ + "/" + name).c_str(), &found) != 0) found = {};
    stamps.emplace_back(found.st_mtime, static_cast<long>(found.st_size));
  }
  return std::exchange(stamps_, stamps) != stamps;
}

bool FabricCache::nodes_changed(const slurm::Snapshot& snapshot) const {
  return !std::equal(seen_.begin(), seen_.end(), snapshot.nodes.begin(), snapshot.nodes.end(),
                     [](const auto& seen, const slurm::NodeRecord& node) { return seen.first == node.name && seen.second == node.extra; });
}

std::shared_ptr<const cluster::Fabric> FabricCache::get(const slurm::Snapshot& snapshot) {
  bool stale = !fabric_ || nodes_changed(snapshot);
  if (stale || snapshot.taken - looked_ >= kLookEvery_s) {
    stale |= files_changed();
    looked_ = snapshot.taken;
  }
  if (!stale) return fabric_;

  seen_.clear();
  std::vector<cluster::FabricNode> nodes;
  int bad = 0;
  std::string example;
  for (const slurm::NodeRecord& record : snapshot.nodes) {
    seen_.emplace_back(record.name, record.extra);
    cluster::FabricNode node{record.name, "", 0, std::nullopt};
    for (const slurm::GpuRequest& gpus : record.gpus) {
      node.gpus += gpus.count;
      if (node.gpu_type.empty()) node.gpu_type = gpus.type;
    }
    auto description = cluster::read_extra(record.extra);
    if (description) node.description = *std::move(description);
    else if (++bad == 1) example = description.error().while_doing("node " + record.name).message();
    nodes.push_back(std::move(node));
  }
  if (bad > 0) log_(fmt::format("{}{}", example, bad > 1 ? fmt::format(" (and {} more nodes)", bad - 1) : ""));

  auto topology = cluster::SlurmTopology::parse(read(kTopologyConf));
  if (!topology) log_(topology.error().while_doing(kTopologyConf).message());
  cluster::Calibration calibration;
  if (const std::string text = read(kCalibration); !text.empty()) {
    const auto json = Json::parse(text);
    auto read = json ? cluster::Calibration::from_json(*json) : Result<cluster::Calibration>(json.error());
    if (read) calibration = *std::move(read);
    else log_(read.error().while_doing(kCalibration).message());
  }
  fabric_ = std::make_shared<const cluster::Fabric>(
      cluster::Fabric::make(std::move(nodes), topology ? *std::move(topology) : cluster::SlurmTopology{}, std::move(calibration)));
  return fabric_;
}

}  // namespace swell::controller
