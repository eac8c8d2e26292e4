// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "tools/doctor/site.h"

namespace swell::test {

inline tools::doctor::PluginFile plugin(const std::string& name) {
  tools::doctor::PluginFile file;
  file.name = name;
  file.path = "/plugins/" + name;
  file.version = std::uint32_t{(22 << 16) + (5 << 8) + 8};
  return file;
}

/// A site without a fault, on the controller host: 2 nodes with GPUs, QOS "normal" and "expansion".
inline tools::doctor::Site healthy_site() {
  tools::doctor::Site site;
  site.host = "head";
  slurm::ControllerConfig slurmctld;
  slurmctld.version = "22.05.8";
  slurmctld.hosts = {"10.0.0.1"};
  slurmctld.auth_info = "socket=/munge";
  slurmctld.plugin_dir = "/plugins:/stock";
  slurmctld.scheduler_type = "sched/backfill";
  slurmctld.select_type = "select/cons_tres";
  slurmctld.job_submit_plugins = "swell,lua";
  slurmctld.preempt_type = "preempt/qos";
  slurmctld.slurmctld_parameters = "preempt_send_user_signal";
  slurmctld.accounting_storage_type = "accounting_storage/slurmdbd";
  site.answers = Result<void>();
  site.slurmctld = slurmctld;
  for (const char* word : {"lua", "swell"})
    site.named_plugins.push_back({"JobSubmitPlugins",
                                  word,
                                  plugin(std::string("job_submit_") + word + ".so"),
                                  {"lua", "partition", "swell"}});
  site.named_plugins.push_back(
      {"AuthType", "auth/munge", plugin("auth_munge.so"), {"munge", "none"}});
  site.under_stock_name = true;
  site.shadow = plugin("sched_backfill.so");
  site.config.cluster_name = "c1";
  site.config.controller_names = {"head"};
  site.config.enforces_qos = site.config.enforces_limits = true;
  site.config.preempt_cancels = true;

  slurm::SitePartition train;
  train.name = "train";
  train.nodes = {"n1", "n2"};
  train.priority_tier = 10;
  train.up = true;
  site.partitions = {train};
  for (const char* name : {"n1", "n2"}) {
    slurm::NodeRecord node;
    node.name = name;
    node.gpus = {{8, "h100", ""}};
    node.extra = R"({"swell":{"v":1,"leaf":"switch-1"}})";
    site.queue.nodes.push_back(node);
  }

  site.swell_conf_path = "/etc/slurm/swell.conf";
  site.swell_conf = controller::Config::parse("ExpansionQOS=expansion\n");
  site.slurmctld_plugins = {plugin("sched_backfill.so"), plugin("job_submit_swell.so")};
  site.plugstack_path = "/etc/slurm/plugstack.conf";
  tools::doctor::PlugstackEntry entry;
  entry.where = site.plugstack_path;
  entry.plugin = plugin("spank_swell.so");
  site.plugstack = std::optional<tools::doctor::PlugstackEntry>(entry);

  tools::doctor::Accounting accounting;
  accounting.qos.push_back({"normal", {"expansion"}, "cluster", 0, 0, 1, 100, {}, {}});
  accounting.qos.push_back({"expansion", {}, "cancel", 60, 0, 1, 1, {}, {}});
  accounting.associations = {{"root", "", {"normal", "expansion"}, {}},
                             {"lab", "ann", {"normal", "expansion"}, {}}};
  site.accounting = accounting;
  site.munge = Result<void>();
  site.control_host = "10.0.0.1";
  site.control_port = Result<void>();
  return site;
}

/// The same without slurmdbd: companions go to partition "spare".
inline tools::doctor::Site healthy_partition_site() {
  tools::doctor::Site site = healthy_site();
  site.slurmctld->preempt_type = "preempt/partition_prio";
  site.slurmctld->accounting_storage_type = "accounting_storage/none";
  site.accounting = Error("not asked");
  site.swell_conf = controller::Config::parse("ExpansionPartition=spare\n");
  slurm::SitePartition spare = site.partitions[0];
  spare.name = "spare";
  spare.priority_tier = 1;
  spare.grace_s = 60;
  site.partitions.push_back(spare);
  return site;
}

/// A running elastic job.
inline slurm::JobRecord elastic_job(slurm::JobId id, const std::string& words) {
  slurm::JobRecord job;
  job.id = id;
  job.uid = 1000;
  job.user = "ann";
  job.name = "llama";
  job.phase = slurm::JobPhase::running;
  job.state_text = "RUNNING";
  job.admin_comment = "swell[" + words + "]";
  return job;
}

}  // namespace swell::test
