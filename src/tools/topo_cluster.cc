// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/topo_cluster.h"

#include <filesystem>
#include <fmt/format.h>

#include "core/slurm_text/hostlist.h"
#include "slurm/fabric_source.h"
#include "slurm/live_slurm.h"
#include "slurm/site_config.h"
#include "tools/files.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

/// Returns the text of the file `given`, which must be readable; if `given` is empty, of `usual` if
/// that exists.
Result<std::string> text_of(const std::string& given, const std::string& usual) {
  if (!given.empty()) return read_file(given);
  std::error_code problem;
  if (usual.empty() || !std::filesystem::exists(usual, problem)) return std::string();
  return read_file(usual);
}

std::vector<cluster::FabricNode> read_nodes(const slurm::Snapshot& snapshot,
                                            std::vector<std::string>& notes) {
  std::vector<cluster::FabricNode> nodes = slurm::fabric_nodes(snapshot.nodes, notes);
  std::vector<std::string> silent;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!nodes[i].description && cluster::read_extra(snapshot.nodes[i].extra))
      silent.push_back(nodes[i].name);
  if (!silent.empty())
    notes.push_back(fmt::format("{} published nothing", slurm_text::fold_hostlist(silent)));
  return nodes;
}

}  // namespace

Result<SiteFabric> load_fabric(const ClusterOptions& options) {
  slurm::init_libslurm();
  const auto files = slurm::find_fabric_files();
  if (!files) return files.error().while_doing("asking slurmctld");
  auto loaded = slurm::make_live_slurm()->load();
  if (!loaded) return loaded.error().while_doing("asking slurmctld");
  if (!loaded->has_value()) return Error("slurmctld gave no answer");
  std::vector<std::string> notes;
  std::vector<cluster::FabricNode> nodes = read_nodes(**loaded, notes);

  // A fault in a file named on the command line is an error; in one found by default, a note.
  cluster::SlurmTopology topology;
  auto text = text_of(options.topology_conf, files->topology_conf);
  auto parsed =
      text ? cluster::SlurmTopology::parse(*text) : Result<cluster::SlurmTopology>(text.error());
  if (parsed) topology = *std::move(parsed);
  else if (!options.topology_conf.empty()) return parsed.error().while_doing("topology.conf");
  else notes.push_back(parsed.error().while_doing("topology.conf").message());
  notes.insert(notes.end(), topology.notes.begin(), topology.notes.end());

  cluster::Calibration calibration;
  text = text_of(options.calibration, files->calibration);
  if (!text) return text.error();
  if (!text->empty()) {
    auto measured = Json::parse(*text);
    auto read = measured ? cluster::Calibration::from_json(*measured)
                         : Result<cluster::Calibration>(measured.error());
    if (read) calibration = *std::move(read);
    else if (!options.calibration.empty()) return read.error().while_doing(options.calibration);
    else notes.push_back(read.error().while_doing("swell_calibration.json").message());
  }
  std::map<std::string, std::string> addresses;
  for (const slurm::NodeRecord& record : (*loaded)->nodes) addresses[record.name] = record.address;
  return SiteFabric{
      cluster::Fabric::make(std::move(nodes), std::move(topology), std::move(calibration)),
      std::move(addresses), std::move(notes)};
}

int show_cluster(const ClusterOptions& options, bool json) {
  const auto site = load_fabric(options);
  if (!site) return fail(site.error());
  if (json) write_json(cluster_json(site->fabric, site->notes));
  else write_text(cluster_text(site->fabric, site->notes));
  return 0;
}

}  // namespace swell::tools
