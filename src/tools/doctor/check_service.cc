// SPDX-License-Identifier: GPL-2.0-or-later
// Checks of the services that must answer, and of the settings of slurm.conf that change how a
// companion ends.
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "control/elastic_spec.h"
#include "control/tag.h"
#include "core/compute_mode.h"
#include "core/count_of.h"
#include "slurm/release.h"
#include "tools/doctor/checks.h"

namespace swell::tools::doctor {

namespace {

Finding munge_finding(const Site& site) {
  const std::string socket =
      site.slurmctld ? slurm::munge_socket_of(site.slurmctld->auth_info) : std::string();
  const std::string named = socket.empty() ? std::string("munge's default socket") : socket;
  if (site.munge) return good("munge", fmt::format("{} signs and verifies", named));
  const bool own_auth = site.slurmctld && site.slurmctld->auth_type == "auth/slurm";
  const Finding broken = fault(
      "munge", fmt::format("{}: {}", named, site.munge.error().message()),
      {fmt::format("systemctl restart munge   # on {}; then: munge -n | unmunge", site.host)});
  if (!own_auth) return broken;
  return fault(
      "munge",
      broken.what +
          "; Slurm does without (AuthType=auth/slurm), Swell's agents and controller do not: no job can grow",
      {"apt-get install munge   # or dnf; on every host, with one /etc/munge/munge.key",
       broken.fix.front()});
}

Finding check_control_port(const Site& site) {
  const int port = site.swell_conf->control_port;
  if (site.control_port)
    return good("ControlPort", fmt::format("{}:{} answers", site.control_host, port));
  return fault(
      "ControlPort",
      fmt::format("{}:{}: {}, for some seconds now; no job can grow", site.control_host, port,
                  site.control_port.error().message()),
      {"grep 'swell:' \"$(scontrol show config | awk '/^SlurmctldLogFile/ { print $3 }')\" | tail   # says why; on the "
       "controller host",
       "systemctl restart slurmctld   # running jobs go on"});
}

Finding check_inactive_limit(const Site& site) {
  const int limit = site.slurmctld->inactive_limit_s;
  if (limit == 0) return good("InactiveLimit", "0");
  return warning(
      "InactiveLimit",
      fmt::format(
          "it is {} s; companions are allocations without a client that slurmctld could ask. Slurm 22.05.8 "
          "was seen to leave them alone, other versions were not tried: where companions end by themselves "
          "(reason InactiveLimit), this is why",
          limit),
      {"in slurm.conf: InactiveLimit=0", "scontrol reconfigure"});
}

/// Checks the option for a signal before preemption: up to 22.05 in SlurmctldParameters; later in
/// PreemptParameters, but the old place is still read.
Finding check_preempt_signal(const Site& site) {
  const std::string check = "preemption signal";
  if (site.slurmctld->slurmctld_parameters.find("preempt_send_user_signal") != std::string::npos)
    return good(check, "SlurmctldParameters=preempt_send_user_signal");
  if (site.config.preempt_parameters.find("send_user_signal") != std::string::npos)
    return good(check, "PreemptParameters=send_user_signal");
  const bool old = !slurm::has_preempt_parameters(site.slurmctld->version);
  const std::string& set =
      old ? site.slurmctld->slurmctld_parameters : site.config.preempt_parameters;
  const bool none = set.empty() || set == "(null)";
  return warning(
      check,
      "Slurm sends preempted companions SIGTERM at once, not the signal on which they checkpoint: steps since the "
      "last checkpoint are lost",
      {fmt::format("in slurm.conf: {}={}{}", old ? "SlurmctldParameters" : "PreemptParameters",
                   none ? "" : set + ",", old ? "preempt_send_user_signal" : "send_user_signal"),
       "scontrol reconfigure"});
}

/// Returns the grace time that Slurm itself gives a preempted companion, in seconds; nullopt if it
/// is not known.
std::optional<std::int64_t> grace_of_slurm(const Site& site) {
  if (!site.swell_conf) return std::nullopt;
  if (site.accounting && !site.swell_conf->expansion_qos.empty())
    for (const Qos& qos : site.accounting->qos)
      if (qos.name == site.swell_conf->expansion_qos) return qos.grace_s;
  for (const slurm::SitePartition& each : site.partitions)
    if (each.name == site.swell_conf->expansion_partition) return each.grace_s;
  return std::nullopt;
}

void check_grace_of_jobs(const Site& site, Findings& findings) {
  const std::optional<std::int64_t> given = grace_of_slurm(site);
  if (!given) return;
  std::vector<std::string> short_of;
  std::int64_t max = 0;
  int elastic = 0;
  for (const slurm::JobRecord& job : site.queue.jobs) {
    const auto tag = control::Tag::find(job.admin_comment);
    if (job.phase == slurm::JobPhase::ended || !tag || tag->get("elastic").empty()) continue;
    const auto spec = control::ElasticSpec::parse(tag->get("elastic"));
    if (!spec) continue;
    ++elastic;
    if (spec->grace_s <= *given) continue;
    short_of.push_back(fmt::format("{} ({} s)", job.id, spec->grace_s));
    max = std::max<std::int64_t>(max, spec->grace_s);
  }
  if (short_of.empty()) {
    findings.push_back(
        good("grace of the jobs", fmt::format("{}, none asks for more than GraceTime ({} s)",
                                              count_of(elastic, "elastic job"), *given)));
    return;
  }
  const bool by_qos = !site.swell_conf->expansion_qos.empty();
  findings.push_back(warning(
      "grace of the jobs",
      fmt::format(
          "GraceTime is {} s, less than these jobs ask for to give GPUs back: {}; when Slurm itself preempts their "
          "companions, they may lose steps",
          *given, fmt::join(short_of, ", ")),
      {by_qos ? fmt::format("sacctmgr -i modify qos where name={} set GraceTime={}",
                            site.swell_conf->expansion_qos, max)
              : fmt::format("scontrol update PartitionName={} GraceTime={}",
                            site.swell_conf->expansion_partition, max)}));
}

/// Reports what users' programs cannot read and therefore ignore.
Finding check_private_data() {
  return warning(
      "PrivateData",
      "users do not see nodes: swellrun does not read what nodes publish of their networks, so that live "
      "switches take any network card, and swell topo and swell plan of users know no nodes; all else works",
      {"in slurm.conf: take nodes out of PrivateData", "scontrol reconfigure"});
}

/// Reports whether a job and its companion on one node can open each other's GPUs.
Finding check_devices(const slurm::SiteConfig& config) {
  return good(
      "GPUs of one node",
      config.devices_apart
          ? "ConstrainDevices=yes in cgroup.conf: a job and its companion on one node cannot "
            "open each other's GPUs; no TP group is over both, and between them the "
            "network's bandwidth is planned with"
          : "devices are not constrained (ConstrainDevices of cgroup.conf, with "
            "TaskPlugin=task/cgroup): a job and its companion on one node share its links");
}

/// Reports GPUs of this host that refuse a second program, which a live switch needs.
Finding check_compute_mode(const OneProgramGpus& gpus) {
  return warning(
      "compute mode",
      one_program_text(gpus) + ": jobs of mode=live are resized by restarts on this host",
      {"nvidia-smi -c DEFAULT   # Slurm's own constraint on devices keeps jobs apart"});
}

/// Reports the problems that the controller names, each with its fix.
void check_troubles(const Site& site, Findings& findings) {
  const std::string folder = site.slurmctld->state_save_location;
  const std::vector<std::string> look = {
      fmt::format("ls -ld {0} {0}/swell_*; df {0}   # on the controller host: the folder and each "
                  "swell_ file belong to SlurmUser, who may write them, and no folder has such a "
                  "name: move that away",
                  folder)};
  for (const auto& [of, sentence] : site.troubles) {
    if (of == "state")
      findings.push_back(
          fault("swell_state",
                sentence + "; where slurmctld starts anew, it will not know which GPUs it has lent",
                look));
    else if (of == "place")
      findings.push_back(warning(
          "swell_place",
          sentence + "; where slurmctld starts without a good swell.conf, nothing keeps others "
                     "out of the place of companions",
          look));
    else if (of == "AdminComment")
      findings.push_back(warning(
          "AdminComment", sentence + "; swell jobs and swell top do not show how jobs stand",
          {"have the site's job_submit plugins accept what SlurmUser changes; in job_submit.lua, first in "
           "slurm_job_modify(): if modify_uid == UID_OF_SLURMUSER then return slurm.SUCCESS end"}));
    else if (of == "slurmctld")
      findings.push_back(
          fault("slurmctld", sentence + "; Swell lends nothing until it does", {"scontrol ping"}));
    else if (of == "EventLog" && site.swell_conf) {
      const std::string& path = site.swell_conf->event_log;
      const std::size_t slash = path.rfind('/');
      findings.push_back(warning(
          of, sentence,
          {fmt::format("ls -l {}; df {}   # on the controller host: SlurmUser writes the file",
                       path,
                       slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash))}));
    } else findings.push_back(warning(of, sentence, look));
  }
}

/// Reports the limit on lent GPUs, or, if there is none, how far one job may grow.
Finding check_lending_limits(const control::SwellConf& conf) {
  const std::string check = "limits on lent GPUs";
  if (conf.max_gpus_per_job > 0)
    return good(check, fmt::format("MaxGPUsPerJob={}", conf.max_gpus_per_job));
  if (!conf.max_lent_by_account.empty()) return good(check, "MaxLentByAccount");
  if (!conf.max_lent_by_qos.empty()) return good(check, "MaxLentByQOS");
  return good(check,
              "none: a job without max= grows to as many GPUs as pay by its profile; "
              "MaxGPUsPerJob in swell.conf limits it");
}

}  // namespace

void check_munge(const Site& site, Findings& findings) { findings.push_back(munge_finding(site)); }

void check_service(const Site& site, Findings& findings) {
  // Before its restart, slurmctld may not have loaded the plugin that answers there.
  const bool to_answer = site.answers && site.not_yet_running.empty();
  if (to_answer && site.swell_conf && site.swell_conf->enabled)
    findings.push_back(check_control_port(site));
  check_troubles(site, findings);
  findings.push_back(check_inactive_limit(site));
  findings.push_back(check_preempt_signal(site));
  check_grace_of_jobs(site, findings);
  findings.push_back(check_devices(site.config));
  if (site.config.hides_nodes) findings.push_back(check_private_data());
  if (!site.one_program_gpus.empty()) findings.push_back(check_compute_mode(site.one_program_gpus));
  if (site.swell_conf) findings.push_back(check_lending_limits(*site.swell_conf));
}

}  // namespace swell::tools::doctor
