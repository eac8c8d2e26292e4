// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/live_fabric.h"

#include <cerrno>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <string_view>
#include <sys/stat.h>

#include "slurm/gres.h"
#include "slurm/live_slurm.h"

namespace swell::slurm {

namespace {

using cluster::FabricNode;
using cluster::SlurmTopology;

std::string text(const char* value) { return value != nullptr ? value : ""; }

Error failure(const char* what) { return Error(fmt::format("{}: {}", what, slurm_reason(errno))); }

/// How many notes of one kind are given word for word: garbage may stand in every node's Extra.
constexpr std::size_t most_notes = 3;

void add_nodes(const node_info_msg_t& message, std::vector<FabricNode>& nodes, FabricSnapshot& snapshot) {
  std::size_t bad = 0;
  for (std::uint32_t i = 0; i < message.record_count; ++i) {
    const node_info_t& info = message.node_array[i];
    if (info.name == nullptr) continue;
    snapshot.memory_mib.push_back(info.real_memory);
    FabricNode node;
    node.name = info.name;
    const GpuRequest gpus = sum_gpus(text(info.gres));
    node.gpu_type = gpus.type;
    node.gpus = gpus.count;
    if (auto description = cluster::read_extra(text(info.extra))) node.description = std::move(*description);
    else if (++bad <= most_notes)
      snapshot.notes.push_back(fmt::format("Extra of {}: {}", node.name, description.error().message()));
    nodes.push_back(std::move(node));
  }
  if (bad > most_notes) snapshot.notes.push_back(fmt::format("Extra of {} more nodes cannot be read", bad - most_notes));
}

/// The path of topology.conf where slurmctld uses it, else nothing.
Result<std::string> find_topology_conf() {
  slurm_conf_t* conf = nullptr;
  if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS) return failure("slurm_load_ctl_conf");
  const std::string plugin = text(conf->topology_plugin);
  const std::string slurm_conf = text(conf->slurm_conf);
  slurm_free_ctl_conf(conf);
  if (plugin != "topology/tree" && plugin != "topology/block") return std::string();
  return slurm_conf.substr(0, slurm_conf.rfind('/') + 1) + "topology.conf";
}

Result<SlurmTopology> read_topology(const std::string& path) {
  if (path.empty()) return SlurmTopology{};
  std::ifstream in(path);
  if (!in) return Error(fmt::format("{}: it cannot be read, though TopologyPlugin uses it", path));
  auto topology = SlurmTopology::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  if (!topology) return topology.error().while_doing("reading " + path);
  return topology;
}

/// Changes when anything changes that a fabric is made of.
std::size_t fingerprint_of(const node_info_msg_t& nodes, const std::string& topology_conf) {
  std::size_t print = 0;
  auto mix = [&](std::size_t more) { print = (print ^ more) * 0x9e3779b97f4a7c15u + (print >> 29); };
  for (std::uint32_t i = 0; i < nodes.record_count; ++i) {
    const node_info_t& info = nodes.node_array[i];
    for (const char* each : {info.name, info.extra, info.gres}) mix(std::hash<std::string_view>{}(each != nullptr ? each : ""));
    mix(info.real_memory);
  }
  struct stat file {};
  if (!topology_conf.empty() && stat(topology_conf.c_str(), &file) == 0) {
    mix(static_cast<std::size_t>(file.st_mtime));
    mix(static_cast<std::size_t>(file.st_size));
  }
  return print;
}

}  // namespace

Result<std::optional<FabricSnapshot>> LiveFabric::load() {
  node_info_msg_t* answer = nullptr;
  if (slurm_load_node(nodes_time_, &answer, SHOW_ALL) != SLURM_SUCCESS) {
    if (errno == SLURM_NO_CHANGE_IN_DATA) return std::optional<FabricSnapshot>{};
    return failure("slurm_load_node");
  }
  const std::unique_ptr<node_info_msg_t, void (*)(node_info_msg_t*)> message(answer, slurm_free_node_info_msg);
  const std::size_t fingerprint = fingerprint_of(*message, topology_conf_);
  nodes_time_ = message->last_update;
  if (fingerprint_ == fingerprint) return std::optional<FabricSnapshot>{};

  std::vector<FabricNode> nodes;
  FabricSnapshot snapshot{cluster::Fabric::make({}), {}, {}};
  add_nodes(*message, nodes, snapshot);
  const auto path = find_topology_conf();
  if (!path) return path.error();
  topology_conf_ = *path;
  SlurmTopology topology;
  if (auto read = read_topology(topology_conf_)) topology = std::move(*read);
  else snapshot.notes.push_back(read.error().message());
  for (const std::string& note : topology.notes) snapshot.notes.push_back("topology.conf: " + note);
  snapshot.fabric = cluster::Fabric::make(std::move(nodes), std::move(topology));
  fingerprint_ = fingerprint_of(*message, topology_conf_);
  return std::optional<FabricSnapshot>(std::move(snapshot));
}

}  // namespace swell::slurm
