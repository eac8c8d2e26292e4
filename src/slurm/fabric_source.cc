// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/fabric_source.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <slurm/slurm.h>
#include <string_view>
#include <sys/stat.h>

#include "base/lower.h"
#include "slurm/conf_file.h"
#include "slurm/live_slurm.h"
#include "slurm/loaded.h"
#include "slurm/versions.h"

namespace swell::slurm {

namespace {

using cluster::Calibration;
using cluster::SlurmTopology;

/// Number of notes of one kind that are reported in full: every node's Extra may hold garbage.
constexpr std::size_t kMaxNotes = 3;
constexpr std::time_t kLookEvery_s = 60;

void mix(std::size_t& print, std::size_t more) {
  print = (print ^ more) * 0x9e3779b97f4a7c15u + (print >> 29);
}

std::size_t print_of(const std::vector<NodeRecord>& nodes) {
  std::size_t print = nodes.size();
  for (const NodeRecord& node : nodes) {
    for (const std::string& each : {node.name, node.extra})
      mix(print, std::hash<std::string>{}(each));
    for (const GpuRequest& gpus : node.gpus)
      mix(print, std::hash<std::string>{}(gpus.type) + static_cast<std::size_t>(gpus.count));
  }
  return print;
}

std::size_t print_of(const FabricFiles& files) {
  std::size_t print = 0;
  for (const std::string& path : {files.topology_conf, files.calibration}) {
    struct stat found {};
    if (path.empty() || stat(path.c_str(), &found) != 0) found = {};
    mix(print, std::hash<std::string>{}(path));
    mix(print, static_cast<std::size_t>(found.st_mtime));
    mix(print, static_cast<std::size_t>(found.st_size));
  }
  return print;
}

/// Returns the text of a file; nothing if the file does not exist.
std::optional<std::string> text_of(const std::string& path) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(path, missing)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

SlurmTopology read_topology(const std::string& path, std::vector<std::string>& notes) {
  if (path.empty()) return {};
  const auto text = text_of(path);
  auto topology =
      text ? SlurmTopology::parse(*text)
           : Result<SlurmTopology>(Error("it cannot be read, though TopologyPlugin uses it"));
  if (!topology) {
    notes.push_back(topology.error().while_doing(path).message());
    return {};
  }
  for (const std::string& note : topology->notes) notes.push_back("topology.conf: " + note);
  return *std::move(topology);
}

Calibration read_calibration(const std::string& path, std::vector<std::string>& notes) {
  const auto text = text_of(path);
  if (!text) return {};
  const auto json = Json::parse(*text);
  auto calibration = json ? Calibration::from_json(*json) : Result<Calibration>(json.error());
  if (calibration) return *std::move(calibration);
  notes.push_back(calibration.error().while_doing(path).message());
  return {};
}

}  // namespace

Result<FabricFiles> find_fabric_files() {
  slurm_conf_t* conf = nullptr;
  if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS)
    return Error(fmt::format("slurm_load_ctl_conf: {}", slurm_reason(errno)));
  const LoadedConf loaded(conf);
  const std::string_view plugin = conf->topology_plugin != nullptr ? conf->topology_plugin : "";
  const std::string slurm_conf = conf->slurm_conf != nullptr ? conf->slurm_conf : "";
  const std::string folder = slurm_conf.substr(0, slurm_conf.rfind('/') + 1);
  const bool is_used = plugin == "topology/tree" || plugin == "topology/block";
  const bool apart = constrains_devices(*conf);
  if (folder.empty()) return FabricFiles{"", "", shapes_jobs(plugin, folder), apart};
  return FabricFiles{is_used ? folder + "topology.conf" : "", folder + "swell_calibration.json",
                     shapes_jobs(plugin, folder), apart};
}

bool devices_apart(std::string_view task_plugin, std::string_view cgroup_conf) {
  if (task_plugin.find("task/cgroup") == std::string_view::npos) return false;
  bool apart = false;
  while (!cgroup_conf.empty()) {
    std::string_view line = cgroup_conf.substr(0, cgroup_conf.find('\n'));
    cgroup_conf.remove_prefix(std::min(line.size() + 1, cgroup_conf.size()));
    line = line.substr(0, line.find_first_of("#\r"));
    while (const auto setting = next_setting(line)) {
      if (lower(setting->key) != "constraindevices") continue;
      const std::string value = lower(setting->value);
      apart = value == "yes" || value == "up" || value == "true" || value == "1";
    }
  }
  return apart;
}

bool shapes_jobs(std::string_view topology_plugin, const std::string& folder) {
  // Up to 22.05 the default plugin has no name; later it is topology/default, then topology/flat.
  constexpr std::string_view shapeless[] = {
      "", "(null)", "topology/none", "topology/default", "topology/flat", "topology/tree"};
  struct stat found {};
  return std::find(std::begin(shapeless), std::end(shapeless), topology_plugin) ==
             std::end(shapeless) ||
         stat((folder + "topology.yaml").c_str(), &found) == 0;
}

std::vector<cluster::FabricNode> fabric_nodes(const std::vector<NodeRecord>& nodes,
                                              std::vector<std::string>& notes) {
  std::vector<cluster::FabricNode> made;
  std::size_t bad = 0;
  for (const NodeRecord& record : nodes) {
    cluster::FabricNode node{record.name, "", 0, std::nullopt};
    for (const GpuRequest& gpus : record.gpus) {
      node.gpus += gpus.count;
      if (node.gpu_type.empty()) node.gpu_type = gpus.type;
    }
    auto description = cluster::read_extra(record.extra);
    if (description) node.description = *std::move(description);
    else if (++bad <= kMaxNotes)
      notes.push_back(fmt::format("Extra of {}: {}", record.name, description.error().message()));
    made.push_back(std::move(node));
  }
  if (bad > kMaxNotes)
    notes.push_back(fmt::format("Extra of {} more nodes cannot be read", bad - kMaxNotes));
  return made;
}

bool FabricSource::files_changed(std::time_t now) {
  if (!find_ || (looked_ && now - *looked_ < kLookEvery_s)) return false;
  looked_ = now;
  auto found = find_();
  cannot_find_ = found ? std::nullopt : std::optional<Error>(found.error());
  if (found) files_ = *std::move(found);
  std::size_t print = print_of(files_);
  if (cannot_find_) mix(print, 1);
  if (files_.slurm_shapes_jobs) mix(print, 2);
  if (files_.devices_apart) mix(print, 3);
  return std::exchange(files_print_, print) != print;
}

std::shared_ptr<const KnownFabric> FabricSource::update(const std::vector<NodeRecord>& nodes,
                                                        std::time_t now) {
  const std::size_t print = print_of(nodes);
  const bool nodes_changed = std::exchange(nodes_print_, print) != print;
  if (!files_changed(now) && !nodes_changed && known_) return known_;

  std::vector<std::string> notes;
  if (cannot_find_)
    notes.push_back(cannot_find_->while_doing("asking for TopologyPlugin").message());
  std::vector<cluster::FabricNode> described = fabric_nodes(nodes, notes);
  SlurmTopology topology = read_topology(files_.topology_conf, notes);
  Calibration calibration = read_calibration(files_.calibration, notes);
  auto fabric =
      cluster::Fabric::make(std::move(described), std::move(topology), std::move(calibration));
  fabric.set_devices_apart(files_.devices_apart);
  known_ = std::make_shared<const KnownFabric>(KnownFabric{
      std::move(fabric), std::move(notes), files_.slurm_shapes_jobs || cannot_find_.has_value()});
  return known_;
}

}  // namespace swell::slurm
