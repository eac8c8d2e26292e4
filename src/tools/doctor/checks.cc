// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/checks.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::tools::doctor {

bool Site::on_controller() const {
  const auto& names = config.controller_names;
  return std::find(names.begin(), names.end(), host) != names.end();
}

std::vector<slurm::SitePartition> Site::gpu_partitions() const {
  auto has_gpus = [&](const std::string& name) {
    return std::any_of(queue.nodes.begin(), queue.nodes.end(), [&](const slurm::NodeRecord& node) {
      return node.name == name && !node.gpus.empty();
    });
  };
  std::vector<slurm::SitePartition> result;
  for (const slurm::SitePartition& each : partitions) {
    if (!each.up || each.root_only || (swell_conf && each.name == swell_conf->expansion_partition)) continue;
    if (std::any_of(each.nodes.begin(), each.nodes.end(), has_gpus)) result.push_back(each);
  }
  return result;
}

Findings examine(const Site& site) {
  Findings findings;
  if (!site.slurmctld) {
    findings.push_back(fault("slurmctld", fmt::format("it does not answer: {}", site.slurmctld.error().message()),
                             {"scontrol ping", "systemctl start slurmctld   # on the controller host; its log says why it ended"}));
    return findings;
  }
  findings.push_back(good("slurmctld", fmt::format("cluster {} answers, Slurm {}", site.config.cluster_name,
                                                   site.slurmctld->version)));
  check_installation(site, findings);
  if (site.swell_conf && !site.swell_conf->expansion_qos.empty()) check_expansion_qos(site, findings);
  if (site.swell_conf && !site.swell_conf->expansion_partition.empty()) check_expansion_partition(site, findings);
  check_partitions(site, findings);
  check_service(site, findings);
  return findings;
}

}  // namespace swell::tools::doctor
