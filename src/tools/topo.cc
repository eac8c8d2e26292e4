// SPDX-License-Identifier: GPL-2.0-or-later
// swell topo: shows this node's hardware; --publish sends it to Slurm, --cluster shows what all
// nodes have published.
#include <fmt/format.h>
#include <memory>

#include "control/input_file.h"
#include "slurm/site_config.h"
#include "tools/commands.h"
#include "tools/files.h"
#include "tools/output.h"
#include "tools/topo_calibrate.h"
#include "tools/topo_cluster.h"
#include "tools/topo_import.h"
#include "tools/topo_publish.h"
#include "topo/machine.h"
#include "topo/render.h"
#include "topo/subnet_map.h"

namespace swell::tools {

namespace {

/// File in which OpenSM writes the whole subnet, on the host that it runs on.
constexpr const char* kSubnetFile = "/var/log/opensm-subnet.lst";

struct Options {
  std::string hwloc_xml, sysfs_root, fabric_file;
  bool json = false, gres_conf = false, cluster = false, publish = false;
  PublishOptions publishing;
  ClusterOptions shown;
};

Result<topo::Machine> look(const Options& options) {
  topo::Machine machine;
  const bool here = options.hwloc_xml.empty() && options.sysfs_root.empty();
  machine.name = here ? slurm::short_host_name() : "";
  // If only another machine's sysfs is given, this machine's hwloc must not be read.
  if (!options.hwloc_xml.empty())
    if (const auto good = control::check_regular(options.hwloc_xml); !good) return good.error();
  if (here || !options.hwloc_xml.empty())
    if (auto read = topo::read_hwloc(machine, options.hwloc_xml); !read) return read.error();
  if (here || !options.sysfs_root.empty())
    topo::read_sysfs(machine, here ? "/sys" : options.sysfs_root);
  if (here) {
    topo::read_verbs(machine);
    topo::read_nvml(machine);
  }
  return machine;
}

/// Returns the leaf switch of the node; empty without a list of the subnet. A list that the user
/// named must be readable.
Result<std::string> find_leaf(const Options& options, const topo::Machine& machine) {
  auto list = read_file(options.fabric_file.empty() ? kSubnetFile : options.fabric_file);
  if (!list)
    return options.fabric_file.empty() ? Result<std::string>(std::string())
                                       : Result<std::string>(list.error());
  std::vector<std::uint64_t> guids;
  for (const topo::Port& port : machine.ports) guids.push_back(port.is.guid);
  return topo::leaf_switch(*list, guids).value_or("");
}

int show_node(const Options& options) {
  auto machine = look(options);
  if (!machine) return fail(machine.error());
  const auto leaf = find_leaf(options, *machine);
  if (!leaf) return fail(leaf.error());
  const cluster::NodeDescription node = topo::describe(*machine, *leaf);
  if (options.publish) return publish(node, options.publishing);
  if (options.json) {
    write_json(topo::to_json(*machine, node));
    return 0;
  }
  write_text(options.gres_conf ? topo::gres_conf(*machine, node) : topo::drawing(*machine, node));
  for (const std::string& note : machine->notes) complain(note);
  return 0;
}

int run(const Options& options) {
  if (options.cluster) return show_cluster(options.shown, options.json);
  if (options.publish && !options.publishing.description.empty()) {
    auto text = read_file(options.publishing.description);
    if (!text) return fail(text.error());
    auto node = described(*text);
    if (!node) return fail(node.error().while_doing(options.publishing.description));
    return publish(*node, options.publishing);
  }
  return show_node(options);
}

}  // namespace

Action add_topo(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "topo", "GPUs, network ports and what is near what: on this node, or in the cluster");
  command->add_flag("--json", options->json, "Print JSON, as swell-topo(1) describes");
  auto* gres =
      command->add_flag("--gres-conf", options->gres_conf, "Print the node's lines of gres.conf");
  command
      ->add_option("--hwloc-xml", options->hwloc_xml,
                   "Describe the machine of this file, written by lstopo")
      ->type_name("FILE");
  command
      ->add_option("--sysfs-root", options->sysfs_root,
                   "Describe the machine that this folder is a copy of /sys of")
      ->type_name("DIR");
  command
      ->add_option(
          "--fabric-file", options->fabric_file,
          fmt::format("The InfiniBand subnet, from ibnetdiscover or OpenSM (default: {}, if there)",
                      kSubnetFile))
      ->type_name("FILE");
  auto* publish_flag = command
                           ->add_flag("--publish", options->publish,
                                      "Put the node's description into its Extra field in Slurm")
                           ->excludes(gres);
  command
      ->add_option("--node", options->publishing.node,
                   "Name of the node to publish for (default: the one on this host)")
      ->type_name("NAME")
      ->needs(publish_flag);
  command
      ->add_option("--description", options->publishing.description,
                   "Publish this file, JSON, in place of what is found")
      ->type_name("FILE")
      ->needs(publish_flag);
  command
      ->add_option("--retry", options->publishing.retry_s,
                   "Try again for this many seconds while slurmctld does not answer")
      ->type_name("SECONDS")
      ->needs(publish_flag)
      ->check(CLI::Range(0, 86400));
  command
      ->add_option("--watch", options->publishing.watch,
                   "Give up when the other end of this open pipe is closed")
      ->type_name("FD")
      ->needs(publish_flag);
  auto* cluster_flag = command
                           ->add_flag("--cluster", options->cluster,
                                      "Show what all nodes published, by class of distance")
                           ->excludes(gres)
                           ->excludes(publish_flag);
  command
      ->add_option("--topology-conf", options->shown.topology_conf,
                   "Slurm's topology.conf (default: the one beside slurm.conf)")
      ->type_name("FILE")
      ->needs(cluster_flag);
  command
      ->add_option(
          "--calibration", options->shown.calibration,
          "What swell topo calibrate wrote (default: swell_calibration.json beside slurm.conf)")
      ->type_name("FILE")
      ->needs(cluster_flag);
  const Action calibrate = add_topo_calibrate(*command);
  const Action import = add_topo_import(*command);
  return [command, options, calibrate, import] {
    if (command->got_subcommand("import")) return import();
    return command->got_subcommand("calibrate") ? calibrate() : run(*options);
  };
}

}  // namespace swell::tools
