// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/site_config.h"

#include <cerrno>
#include <fmt/format.h>
#include <functional>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>
#include <strings.h>
#include <unistd.h>

#include "slurm/hostlist.h"
#include "slurm/live_slurm.h"
#include "slurm/loaded.h"
#include "slurm/versions.h"

namespace swell::slurm {

namespace {

std::string text(const char* value) { return value != nullptr ? value : ""; }

// Bits of AccountingStorageEnforce as slurmctld stores it; no public header names them.
constexpr std::uint16_t kEnforceLimits = 0x0002, kEnforceQos = 0x0008;

PreemptMode mode_of(std::uint16_t mode) {
  if (mode == NO_VAL16) return PreemptMode::of_cluster;
  if ((mode & PREEMPT_MODE_CANCEL) != 0) return PreemptMode::cancel;
  if ((mode & PREEMPT_MODE_REQUEUE) != 0) return PreemptMode::requeue;
  if ((mode & PREEMPT_MODE_SUSPEND) != 0) return PreemptMode::suspend;
  return PreemptMode::off;
}

SitePartition convert_site(const partition_info_t& info) {
  SitePartition partition;
  partition.name = text(info.name);
  partition.nodes = expand_hosts(info.nodes);
  partition.alloc_nodes = expand_hosts(info.allow_alloc_nodes);
  partition.allow_accounts = text(info.allow_accounts);
  partition.deny_accounts = text(info.deny_accounts);
  partition.allow_qos = text(info.allow_qos);
  partition.deny_qos = text(info.deny_qos);
  partition.allow_groups = text(info.allow_groups);
  partition.qos = text(info.qos_char);
  partition.priority_tier = info.priority_tier;
  partition.preempt_mode = mode_of(info.preempt_mode);
  partition.grace_s = info.grace_time == NO_VAL ? 0 : info.grace_time;
  partition.max_time_min = info.max_time == INFINITE || info.max_time == NO_VAL ? 0 : info.max_time;
  partition.max_nodes = info.max_nodes == INFINITE || info.max_nodes == NO_VAL ? 0 : info.max_nodes;
  partition.up = info.state_up == PARTITION_UP;
  partition.root_only = (info.flags & PART_FLAG_ROOT_ONLY) != 0;
  return partition;
}

/// Calls `see` with each QOS of slurmctld's cache.
Result<void> for_each_qos(const std::function<void(const slurmdb_qos_rec_t&)>& see) {
  assoc_mgr_info_request_msg_t request{};
  request.flags = ASSOC_MGR_INFO_FLAG_QOS;
  assoc_mgr_info_msg_t* message = nullptr;
  if (slurm_load_assoc_mgr_info(&request, &message) != SLURM_SUCCESS)
    return Error(fmt::format("slurm_load_assoc_mgr_info: {}", slurm_reason(errno)));
  if (message->qos_list != nullptr) {
    auto* each = slurm_list_iterator_create(message->qos_list);
    while (const auto* record = static_cast<slurmdb_qos_rec_t*>(slurm_list_next(each)))
      see(*record);
    slurm_list_iterator_destroy(each);
  }
  slurm_free_assoc_mgr_info_msg(message);
  return {};
}

}  // namespace

const char* to_text(PreemptMode mode) noexcept {
  switch (mode) {
    case PreemptMode::of_cluster: return "CLUSTER";
    case PreemptMode::off: return "OFF";
    case PreemptMode::cancel: return "CANCEL";
    case PreemptMode::requeue: return "REQUEUE";
    case PreemptMode::suspend: return "SUSPEND";
  }
  return "";
}

void init_libslurm() { slurm_init(nullptr); }

Result<SiteConfig> load_site_config() {
  slurm_conf_t* conf = nullptr;
  if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS)
    return Error(fmt::format("slurm_load_ctl_conf: {}", slurm_reason(errno)));
  const LoadedConf loaded(conf);
  SiteConfig config;
  config.cluster_name = text(conf->cluster_name);
  for (std::uint32_t i = 0; i < conf->control_cnt; ++i)
    config.controller_names.push_back(text(conf->control_machine[i]));
  config.preempt_parameters = text(preempt_parameters_of(*conf));
  config.enforces_limits = (conf->accounting_storage_enforce & kEnforceLimits) != 0;
  config.enforces_qos = (conf->accounting_storage_enforce & kEnforceQos) != 0;
  config.preempt_exempt_s =
      conf->preempt_exempt_time == INFINITE || conf->preempt_exempt_time == NO_VAL
          ? 0
          : conf->preempt_exempt_time;
  const PreemptMode mode = mode_of(conf->preempt_mode);
  config.preempt_off = mode == PreemptMode::off;
  config.preempt_cancels = mode == PreemptMode::cancel || mode == PreemptMode::requeue;
  config.hides_nodes = (conf->private_data & PRIVATE_DATA_NODES) != 0;
  config.devices_apart = constrains_devices(*conf);
  return config;
}

Result<std::vector<SitePartition>> load_site_partitions() {
  partition_info_msg_t* message = nullptr;
  if (slurm_load_partitions(0, &message, SHOW_ALL) != SLURM_SUCCESS)
    return Error(fmt::format("slurm_load_partitions: {}", slurm_reason(errno)));
  const LoadedPartitions loaded(message);
  std::vector<SitePartition> partitions;
  for (std::uint32_t i = 0; i < message->record_count; ++i)
    partitions.push_back(convert_site(message->partition_array[i]));
  return partitions;
}

Result<std::uint32_t> load_qos_grace(const std::string& qos) {
  Result<std::uint32_t> grace = Error(fmt::format("slurmctld knows no QOS \"{}\"", qos));
  const Result<void> seen = for_each_qos([&](const slurmdb_qos_rec_t& record) {
    if (strcasecmp(text(record.name).c_str(), qos.c_str()) == 0)
      grace = record.grace_time == NO_VAL ? 0 : record.grace_time;
  });
  return seen ? grace : Result<std::uint32_t>(seen.error());
}

Result<std::map<std::string, std::uint32_t>> load_qos_max_times() {
  std::map<std::string, std::uint32_t> times;
  const Result<void> seen = for_each_qos([&](const slurmdb_qos_rec_t& record) {
    if (record.max_wall_pj != NO_VAL && record.max_wall_pj != INFINITE)
      times[text(record.name)] = record.max_wall_pj;
  });
  return seen ? Result<std::map<std::string, std::uint32_t>>(std::move(times)) : seen.error();
}

std::string short_host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return {};
  const std::string full(name);
  return full.substr(0, full.find('.'));
}

}  // namespace swell::slurm
