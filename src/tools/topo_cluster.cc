// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/topo_cluster.h"

#include <filesystem>
#include <fmt/format.h>

#include "core/cluster/hostlist.h"
#include "slurm/live_slurm.h"
#include "slurm/site_config.h"
#include "tools/files.h"

namespace swell::tools {

namespace {

/// Text of a file: of `given`, which must be readable, else of `usual` beside slurm.conf, if it is there.
Result<std::string> text_of(const std::string& given, const std::string& slurm_conf, const char* usual) {
  if (!given.empty()) return read_file(given);
  const std::filesystem::path path = std::filesystem::path(slurm_conf).parent_path() / usual;
  std::error_code problem;
  if (!std::filesystem::exists(path, problem)) return std::string();
  return read_file(path.string());
}

std::vector<cluster::FabricNode> read_nodes(const slurm::Snapshot& snapshot, std::vector<std::string>& notes) {
  std::vector<cluster::FabricNode> nodes;
  std::vector<std::string> silent;
  for (const slurm::NodeRecord& record : snapshot.nodes) {
    cluster::FabricNode node;
    node.name = record.name;
    for (const slurm::GpuRequest& gpus : record.gpus) {
      node.gpus += gpus.count;
      if (node.gpu_type.empty()) node.gpu_type = gpus.type;
    }
    auto description = cluster::read_extra(record.extra);
    if (!description) notes.push_back(description.error().while_doing("node " + record.name).message());
    else if (*description) node.description = **std::move(description);
    else silent.push_back(record.name);
    nodes.push_back(std::move(node));
  }
  if (!silent.empty()) notes.push_back(fmt::format("{} published nothing", cluster::fold_hostlist(silent)));
  return nodes;
}

}  // namespace

int show_cluster(const ClusterOptions& options, bool json) {
  slurm::init_libslurm();
  auto config = slurm::load_controller_config();
  if (!config) return fail(config.error().while_doing("asking slurmctld"));
  auto loaded = slurm::make_live_slurm()->load();
  if (!loaded) return fail(loaded.error().while_doing("asking slurmctld"));
  if (!loaded->has_value()) return fail(Error("slurmctld gave no answer"));
  std::vector<std::string> notes;
  std::vector<cluster::FabricNode> nodes = read_nodes(**loaded, notes);

  // What was named on the command line must be right; of what is merely there, a fault is a note.
  cluster::SlurmTopology topology;
  auto text = text_of(options.topology_conf, config->slurm_conf, "topology.conf");
  auto parsed = text ? cluster::SlurmTopology::parse(*text) : Result<cluster::SlurmTopology>(text.error());
  if (parsed) topology = *std::move(parsed);
  else if (!options.topology_conf.empty()) return fail(parsed.error().while_doing("topology.conf"));
  else notes.push_back(parsed.error().while_doing("topology.conf").message());
  notes.insert(notes.end(), topology.notes.begin(), topology.notes.end());

  cluster::Calibration calibration;
  text = text_of(options.calibration, config->slurm_conf, "swell_calibration.json");
  if (!text) return fail(text.error());
  if (!text->empty()) {
    auto measured = Json::parse(*text);
    auto read = measured ? cluster::Calibration::from_json(*measured) : Result<cluster::Calibration>(measured.error());
    if (read) calibration = *std::move(read);
    else if (!options.calibration.empty()) return fail(read.error().while_doing(options.calibration));
    else notes.push_back(read.error().while_doing("swell_calibration.json").message());
  }
  const cluster::Fabric fabric = cluster::Fabric::make(std::move(nodes), std::move(topology), std::move(calibration));
  fmt::print("{}", json ? cluster_json(fabric, notes).dump_pretty() : cluster_text(fabric, notes));
  return 0;
}

}  // namespace swell::tools
