// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/checks.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace swell::tools::doctor {

bool Site::on_controller() const {
  const auto& names = config.controller_names;
  return std::find(names.begin(), names.end(), host) != names.end();
}

bool Site::would_start() const {
  return missing_folders.empty() &&
         std::none_of(named_plugins.begin(), named_plugins.end(),
                      [](const NamedPlugin& plugin) { return plugin.is_missing(); });
}

std::vector<slurm::SitePartition> Site::gpu_partitions() const {
  auto has_gpus = [&](const std::string& name) {
    return std::any_of(queue.nodes.begin(), queue.nodes.end(), [&](const slurm::NodeRecord& node) {
      return node.name == name && !node.gpus.empty();
    });
  };
  std::vector<slurm::SitePartition> result;
  for (const slurm::SitePartition& each : partitions) {
    if (!each.up || each.root_only || (swell_conf && each.name == swell_conf->expansion_partition))
      continue;
    if (std::any_of(each.nodes.begin(), each.nodes.end(), has_gpus)) result.push_back(each);
  }
  return result;
}

namespace {

/// Checks munge, then slurmctld, which cannot be asked without munge.
void check_slurmctld(const Site& site, Findings& findings) {
  check_munge(site, findings);
  if (!site.cannot_ask && !site.answers) {
    findings.push_back(
        fault("slurmctld",
              fmt::format("it does not answer: {}{}", site.answers.error().message(),
                          site.slurmctld ? "; what follows is from this host's files" : ""),
              {"scontrol ping",
               "systemctl start slurmctld   # on the controller host; its log says why it ended"}));
  } else if (site.answers) {
    findings.push_back(
        good("slurmctld", fmt::format("cluster {} answers, Slurm {}", site.config.cluster_name,
                                      site.slurmctld->version)));
  }
  if (!site.not_yet_running.empty())
    findings.push_back(fault(
        "restart",
        fmt::format(
            "slurm.conf was changed after slurmctld started: {}; the checks below read the changed "
            "file{}",
            fmt::join(site.not_yet_running, ", "),
            site.would_start() ? "" : "; slurmctld would not start with it, so fix that first"),
        site.would_start()
            ? std::vector<std::string>{"systemctl restart slurmctld   # running jobs go on"}
            : std::vector<std::string>{}));
}

}  // namespace

Findings examine(const Site& site) {
  Findings findings;
  if (!site.slurmctld && !site.answers && site.answers.error().code() == ErrorCode::not_asked) {
    findings.push_back(
        fault("slurm.conf", fmt::format("it cannot be read: {}", site.slurmctld.error().message()),
              {"swell doctor   # as root, with SLURM_CONF naming the slurm.conf of this site"}));
    return findings;
  }
  check_slurmctld(site, findings);
  if (!site.slurmctld) {
    // slurmctld's host may have the file, but slurmctld could not be asked for it.
    findings.push_back(
        warning("slurm.conf",
                fmt::format("{}; so neither it nor swell.conf and the plugins are checked",
                            site.slurmctld.error().message()),
                {"swell doctor   # again with SLURM_CONF naming the slurm.conf of this site, or "
                 "once slurmctld can be asked"}));
    return findings;
  }
  check_installation(site, findings);
  if (site.swell_conf && !site.swell_conf->expansion_qos.empty())
    check_expansion_qos(site, findings);
  if (site.answers && site.swell_conf && !site.swell_conf->expansion_partition.empty())
    check_expansion_partition(site, findings);
  if (site.answers) check_partitions(site, findings);
  else
    findings.push_back(warning("partitions",
                               "they are not checked, since slurmctld does not answer",
                               {"swell doctor   # again, once it does"}));
  check_service(site, findings);
  return findings;
}

}  // namespace swell::tools::doctor
