// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/slurm_conf.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/lower.h"
#include "core/number.h"
#include "slurm/fabric_source.h"

namespace swell::tools::doctor {

namespace {

bool has_word(const std::string& comma_list, std::initializer_list<const char*> wanted) {
  std::istringstream in(lower(comma_list));
  for (std::string word; std::getline(in, word, ',');)
    if (std::find(wanted.begin(), wanted.end(), word) != wanted.end()) return true;
  return false;
}

/// Returns the text of a value; slurmctld prints "(null)" for an unset value.
std::string shown(const std::string& value) { return value == "(null)" ? std::string() : value; }

}  // namespace

slurm::ControllerConfig with_file(slurm::ControllerConfig config, const SlurmConf& file,
                                  const std::string& path) {
  config.slurm_conf = path;
  if (!file.addresses.empty()) config.hosts = file.addresses;
  auto take = [&](std::string& into, const char* key, const char* otherwise) {
    if (const std::string* value = file.find(key)) into = *value;
    else if (otherwise != nullptr) into = otherwise;
  };
  take(config.auth_type, "AuthType", "auth/munge");
  take(config.auth_info, "AuthInfo", "");
  take(config.state_save_location, "StateSaveLocation", nullptr);
  take(config.plugin_dir, "PluginDir", nullptr);
  take(config.scheduler_type, "SchedulerType", "sched/backfill");
  take(config.select_type, "SelectType", nullptr);
  take(config.job_submit_plugins, "JobSubmitPlugins", "");
  take(config.preempt_type, "PreemptType", "preempt/none");
  take(config.plugstack, "PlugStackConfig", nullptr);
  take(config.slurmctld_parameters, "SlurmctldParameters", "");
  take(config.accounting_storage_type, "AccountingStorageType", nullptr);
  if (const std::string* limit = file.find("InactiveLimit"))
    config.inactive_limit_s = read_number<std::uint16_t>(*limit).value_or(config.inactive_limit_s);
  return config;
}

slurm::SiteConfig with_file(slurm::SiteConfig config, const SlurmConf& file,
                            const std::string& path) {
  if (const std::string* name = file.find("ClusterName")) config.cluster_name = lower(*name);
  if (!file.hosts.empty()) config.controller_names = file.hosts;
  const std::string* parameters = file.find("PreemptParameters");
  config.preempt_parameters = parameters != nullptr ? *parameters : std::string();
  const std::string* enforce = file.find("AccountingStorageEnforce");
  const std::string enforced = enforce != nullptr ? *enforce : std::string();
  config.enforces_qos = has_word(enforced, {"qos", "all"});
  config.enforces_limits = has_word(enforced, {"limits", "safe", "all"});
  const std::string* mode = file.find("PreemptMode");
  const std::string modes = mode != nullptr ? *mode : "off";
  config.preempt_off = has_word(modes, {"off"});
  config.preempt_cancels = has_word(modes, {"cancel", "requeue"});
  const std::string* hidden = file.find("PrivateData");
  config.hides_nodes = hidden != nullptr && has_word(*hidden, {"nodes", "all"});
  if (const std::string* task = file.find("TaskPlugin")) {
    std::ifstream cgroup(path.substr(0, path.rfind('/') + 1) + "cgroup.conf");
    const std::string text(std::istreambuf_iterator<char>(cgroup), {});
    config.devices_apart = slurm::devices_apart(*task, text);
  }
  return config;
}

std::vector<std::string> not_yet_running(const slurm::ControllerConfig& file,
                                         const slurm::ControllerConfig& running,
                                         const slurm::SiteConfig& site_of_file,
                                         const slurm::SiteConfig& site_running) {
  std::vector<std::string> found;
  auto compare = [&](const char* key, const std::string& wanted, const std::string& has) {
    if (shown(wanted) != shown(has))
      found.push_back(
          fmt::format("{}={} (it runs with {})", key, wanted, shown(has).empty() ? "none" : has));
  };
  compare("SchedulerType", file.scheduler_type, running.scheduler_type);
  compare("JobSubmitPlugins", file.job_submit_plugins, running.job_submit_plugins);
  compare("PluginDir", file.plugin_dir, running.plugin_dir);
  compare("PreemptType", file.preempt_type,
          running.preempt_type.empty() ? "preempt/none" : running.preempt_type);
  compare("SlurmctldParameters", file.slurmctld_parameters, running.slurmctld_parameters);
  compare("PreemptParameters", site_of_file.preempt_parameters, site_running.preempt_parameters);
  auto flag = [&](const char* key, bool wanted, bool has) {
    if (wanted != has)
      found.push_back(
          fmt::format("{} {}", key, wanted ? "(it runs without)" : "no more (it runs with it)"));
  };
  flag("AccountingStorageEnforce=qos", site_of_file.enforces_qos, site_running.enforces_qos);
  flag("AccountingStorageEnforce=limits", site_of_file.enforces_limits,
       site_running.enforces_limits);
  flag("PreemptMode=OFF", site_of_file.preempt_off, site_running.preempt_off);
  return found;
}

}  // namespace swell::tools::doctor
