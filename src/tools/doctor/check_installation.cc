// SPDX-License-Identifier: GPL-2.0-or-later
// Checks of swell.conf, of the lines of slurm.conf that load Swell, and of the plugin files.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "core/near_name.h"
#include "tools/doctor/checks.h"

namespace swell::tools::doctor {

namespace {

constexpr const char* kRestart = "systemctl restart slurmctld   # running jobs go on";

/// Returns the SLURM_VERSION_NUMBER of a version such as "22.05.8"; 0 for other text.
std::uint32_t version_number(const std::string& text) {
  unsigned major = 0, minor = 0, micro = 0;
  if (std::sscanf(text.c_str(), "%u.%u.%u", &major, &minor, &micro) != 3) return 0;
  return (major << 16) + (minor << 8) + micro;
}

std::string version_text(std::uint32_t number) {
  return fmt::format("{}.{:02}.{}", number >> 16, number >> 8 & 0xff, number & 0xff);
}

bool lists(const std::string& comma_list, const std::string& wanted) {
  std::istringstream in(comma_list);
  for (std::string word; std::getline(in, word, ',');)
    if (word == wanted || word == "job_submit/" + wanted) return true;
  return false;
}

/// Returns PluginDir without one of its folders.
std::string without(const std::string& plugin_dir, const std::string& folder) {
  std::istringstream in(plugin_dir);
  std::string rest;
  for (std::string each; std::getline(in, each, ':');)
    if (each != folder) rest += (rest.empty() ? "" : ":") + each;
  return rest;
}

std::string rebuild(const std::string& version) {
  return fmt::format(
      "./configure && make && make install   # in Swell's source, against the headers of Slurm {}",
      version);
}

/// Returns whether a file could not be read for lack of permission: this is not the site's fault.
bool is_closed(const std::string& reason) {
  return reason.find(std::strerror(EACCES)) != std::string::npos;
}

/// Returns the commands that fix a swell.conf that slurmctld cannot use.
std::vector<std::string> mends_of_swell_conf(const Site& site) {
  const std::string& path = site.swell_conf_path;
  const bool is_missing =
      site.swell_conf.error().message().find(std::strerror(ENOENT)) != std::string::npos;
  if (!is_missing)
    return {fmt::format("$EDITOR {}   # swell.conf(5) describes every key", path), kRestart};
  const bool has_qos =
      site.slurmctld && site.slurmctld->accounting_storage_type == "accounting_storage/slurmdbd";
  return {has_qos ? fmt::format("echo ExpansionQOS=expansion >> {}   # a QOS that swell doctor "
                                "then checks: swell-admin(7)",
                                path)
                  : fmt::format("echo ExpansionPartition=expansion >> {}   # a partition that "
                                "swell doctor then checks: swell-admin(7)",
                                path),
          kRestart};
}

Finding check_swell_conf(const Site& site) {
  const std::string check = "swell.conf";
  if (!site.swell_conf && is_closed(site.swell_conf.error().message()))
    return fault(
        check,
        fmt::format("it is there and cannot be read: {}; swellrun and SlurmUser need it too",
                    site.swell_conf.error().message()),
        {fmt::format("chmod a+r {}   # and a+x on the folders above it", site.swell_conf_path)});
  if (!site.swell_conf) {
    if (!site.on_controller())
      return warning(
          check,
          fmt::format(
              "{}; swellrun finds the controller by it, so jobs whose script runs on this host "
              "never grow; what it says is checked on the controller host",
              site.swell_conf.error().message()),
          {fmt::format("copy swell.conf of the controller host ({}) to {}",
                       site.slurmctld->hosts.empty() ? "?" : site.slurmctld->hosts.front(),
                       site.swell_conf_path)});
    return fault(check, fmt::format("elasticity is off: {}", site.swell_conf.error().message()),
                 mends_of_swell_conf(site));
  }
  if (!site.swell_conf_for_all)
    return fault(check,
                 fmt::format("{} is not readable by all users, as swellrun and SlurmUser need it",
                             site.swell_conf_path),
                 {fmt::format("chmod a+r {}", site.swell_conf_path), kRestart});
  if (!site.swell_conf->enabled)
    return warning(check, "elasticity is switched off by Elasticity=no",
                   {fmt::format("in {}: Elasticity=yes", site.swell_conf_path), kRestart});
  if (site.swell_conf->draining)
    return warning(check, "Elasticity=drain: what was lent is taken back, and nothing more is lent",
                   {"swell drain --undo"});
  const auto& config = *site.swell_conf;
  return good(check, config.expansion_qos.empty()
                         ? fmt::format("{}: companions go to partition {}", site.swell_conf_path,
                                       config.expansion_partition)
                         : fmt::format("{}: companions run under QOS {}", site.swell_conf_path,
                                       config.expansion_qos));
}

/// Returns the same line of PluginDir for every fault of it: the folder that gives Swell's
/// scheduler the name of Slurm's, the folder of Swell's plugins if one is missing, and the existing
/// folders. `under_stock_name`: false if the site uses the scheduler's own name, sched/swell.
std::string whole_plugin_dir(const Site& site, bool under_stock_name) {
  const std::string& found = site.shadow.path;
  const std::string shadow =
      found.empty() ? SWELL_PKGLIBDIR "/shadow" : found.substr(0, found.rfind('/'));
  const bool lacks_plugins =
      std::any_of(site.slurmctld_plugins.begin(), site.slurmctld_plugins.end(),
                  [](const PluginFile& each) { return each.path.empty(); });
  std::string rest = without(site.slurmctld->plugin_dir, shadow);
  if (lacks_plugins) rest = SWELL_PLUGINDIR ":" + without(rest, SWELL_PLUGINDIR);
  return fmt::format("in slurm.conf: PluginDir={}{}   # these folders must be on every host",
                     under_stock_name ? shadow + ":" : "", rest);
}

/// Returns lines that load Swell's scheduler under Slurm's name, which heterogeneous jobs need.
std::vector<std::string> under_stock_name(const Site& site) {
  return {"in slurm.conf: SchedulerType=sched/backfill", whole_plugin_dir(site, true), kRestart};
}

Finding check_scheduler(const Site& site) {
  const std::string& type = site.slurmctld->scheduler_type;
  if (site.under_stock_name)
    return good("SchedulerType", fmt::format("{}, which is Swell's plugin of that name", type));
  if (type != "sched/swell")
    return fault(
        "SchedulerType",
        type == "sched/backfill"
            ? std::string(
                  "it is Slurm's own sched/backfill, so nothing is lent: Swell's plugin of that name "
                  "does not stand first in PluginDir")
            : fmt::format("it is {}, so nothing is lent", type),
        under_stock_name(site));
  if (site.swell_conf && site.swell_conf->base_scheduler != "sched/backfill")
    return good("SchedulerType", type);
  return warning(
      "SchedulerType",
      "under the name sched/swell Slurm starts no heterogeneous jobs: it refuses those of all users of the site",
      under_stock_name(site));
}

/// Returns JobSubmitPlugins with swell first. Words that name no plugin are replaced by the likely
/// one, or left out. Hosts other than slurmctld's need not have the plugins.
std::string fixed_job_submit(const Site& site) {
  std::string made;
  for (const NamedPlugin& plugin : site.named_plugins) {
    if (plugin.key != "JobSubmitPlugins") continue;
    const std::string word = plugin.is_missing() && site.on_controller()
                                 ? near_name(plugin.word, plugin.others).value_or("")
                                 : plugin.word;
    if (!word.empty() && !lists("swell", word) && !lists(made, word))
      made += (made.empty() ? "" : ",") + word;
  }
  return made.empty() ? "swell" : "swell," + made;
}

Finding check_job_submit(const Site& site) {
  const std::string& plugins = site.slurmctld->job_submit_plugins;
  const std::vector<std::string> fix{
      fmt::format("in slurm.conf: JobSubmitPlugins={}", fixed_job_submit(site)), kRestart};
  for (const NamedPlugin& plugin : site.named_plugins) {
    if (plugin.key != "JobSubmitPlugins" || !plugin.is_missing() || !site.on_controller()) continue;
    const auto meant = near_name(plugin.word, plugin.others);
    return fault(
        "JobSubmitPlugins",
        fmt::format("it names \"{}\", and {} is in no folder of PluginDir ({}), so slurmctld "
                    "does not start{}",
                    plugin.word, plugin.file.name, site.slurmctld->plugin_dir,
                    meant ? fmt::format("; \"{}\" was probably meant", *meant) : ""),
        fix);
  }
  if (lists(plugins.substr(0, plugins.find(',')), "swell"))
    return good("JobSubmitPlugins", plugins);
  if (lists(plugins, "swell"))
    return warning("JobSubmitPlugins",
                   fmt::format("{} stands before swell; a plugin there that sets the comment, the "
                               "name or other fields of companions makes Swell refuse them",
                               plugins.substr(0, plugins.find(','))),
                   fix);
  return fault(
      "JobSubmitPlugins",
      fmt::format(
          "swell is not in it (it is {}), so --elastic is not recorded and companions are not admitted",
          plugins.empty() || plugins == "(null)" ? "empty" : plugins),
      fix);
}

/// Returns PluginDir with missing folders left out or replaced by the likely ones, and with Slurm's
/// own folder.
std::string fixed_plugin_dir(const Site& site, bool lacks_slurms_own) {
  std::istringstream in(site.slurmctld->plugin_dir);
  std::vector<std::string> folders;
  const auto add = [&](const std::string& folder) {
    if (std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  for (std::string each; std::getline(in, each, ':');) {
    if (std::find(site.missing_folders.begin(), site.missing_folders.end(), each) ==
        site.missing_folders.end())
      add(each);
    else if (const auto meant = near_name(
                 each, {SLURM_PLUGINDIR, SWELL_PKGLIBDIR "/shadow", SWELL_PKGLIBDIR "/select"}))
      add(*meant);
  }
  if (lacks_slurms_own) add(SLURM_PLUGINDIR);
  return fmt::format("{}", fmt::join(folders, ":"));
}

/// Checks that Slurm's programs start with PluginDir. Returns nullopt if they do, as far as this
/// host can see.
std::optional<Finding> check_plugin_dir(const Site& site) {
  std::vector<std::string> wrong;
  if (!site.missing_folders.empty())
    wrong.push_back(
        fmt::format("there is no folder {} here", fmt::join(site.missing_folders, ", nor ")));
  bool lacks_slurms_own = false;
  for (const NamedPlugin& plugin : site.named_plugins) {
    if (plugin.key != "AuthType" || !plugin.is_missing()) continue;
    lacks_slurms_own = true;
    wrong.push_back(fmt::format("{} of AuthType={} is in no folder of it, as in Slurm's own",
                                plugin.file.name, plugin.word));
  }
  if (wrong.empty()) return std::nullopt;
  return fault(
      "PluginDir",
      fmt::format("no program of Slurm starts with {}: {}", site.slurmctld->plugin_dir,
                  fmt::join(wrong, "; ")),
      {fmt::format("in slurm.conf: PluginDir={}", fixed_plugin_dir(site, lacks_slurms_own)),
       kRestart});
}

Finding check_plugin(const Site& site, const PluginFile& plugin) {
  const std::string& running = site.slurmctld->version;
  if (plugin.path.empty() && !plugin.unreadable.empty())
    return fault(plugin.name, fmt::format("it is there and cannot be read: {}", plugin.unreadable),
                 {fmt::format("chmod a+r {}   # and a+x on the folders above it",
                              plugin.unreadable.substr(0, plugin.unreadable.rfind(':')))});
  if (plugin.path.empty()) {
    const std::string& running_dir = site.slurmctld->plugin_dir;
    const std::string what = fmt::format("it is in no folder of PluginDir ({})", running_dir);
    if (!site.on_controller())
      return warning(plugin.name, what + "; only the controller host needs it",
                     {"swell doctor   # on the controller host"});
    return fault(plugin.name, what,
                 {without(running_dir, SWELL_PLUGINDIR) == running_dir
                      ? whole_plugin_dir(site, site.slurmctld->scheduler_type != "sched/swell")
                      : fmt::format("make install   # in Swell's source, on {}", site.host),
                  kRestart});
  }
  if (!plugin.version)
    return fault(plugin.name, fmt::format("{}: {}", plugin.path, plugin.version.error().message()),
                 {rebuild(running)});
  if (*plugin.version != version_number(running))
    return fault(
        plugin.name,
        fmt::format("{} was built for Slurm {}, but {} runs: slurmctld will not start with it",
                    plugin.path, version_text(*plugin.version), running),
        {rebuild(running), kRestart});
  return good(plugin.name, fmt::format("{}, built for Slurm {}", plugin.path, running));
}

/// Checks the select plugin. It is optional: its absence is not a fault.
Finding check_select(const Site& site) {
  const std::string check = "select";
  const std::string& type = site.slurmctld->select_type;
  if (type != "select/cons_tres")
    return good(
        check,
        fmt::format("SelectType is {}: Swell keeps jobs close together under select/cons_tres only",
                    type));
  if (site.select.path.empty())
    return good(
        check,
        "cons_tres alone chooses nodes; \"man swell-admin\" says how Swell keeps those of a job close together");
  if (!site.select_comes_first) {
    const std::string folder = site.select.path.substr(0, site.select.path.rfind('/'));
    return warning(
        check,
        fmt::format(
            "{} has no effect: Slurm's own plugin of that name stands before it in PluginDir",
            site.select.path),
        {fmt::format("in slurm.conf: PluginDir={}:{}", folder,
                     without(site.slurmctld->plugin_dir, folder)),
         kRestart});
  }
  const Finding finding = check_plugin(site, site.select);
  if (finding.level != Level::ok) return finding;
  return good(check, fmt::format("{} keeps the nodes of a job close together", site.select.path));
}

Finding check_spank(const Site& site) {
  const std::string check = "spank_swell.so";
  if (!site.plugstack && is_closed(site.plugstack.error().message()))
    return fault(check,
                 fmt::format("{}: it is there and cannot be read, as sbatch of all users must",
                             site.plugstack.error().message()),
                 {fmt::format("chmod a+r {}", site.plugstack_path)});
  if (!site.plugstack)
    return fault(check,
                 fmt::format("users have no --elastic: {}", site.plugstack.error().message()),
                 {fmt::format("echo 'optional spank_swell.so' >> {}   # on every host",
                              site.plugstack_path)});
  if (!*site.plugstack)
    return fault(
        check, fmt::format("{} does not name it, so users have no --elastic", site.plugstack_path),
        {fmt::format("echo 'optional spank_swell.so' >> {}   # on every host",
                     site.plugstack_path)});
  const PlugstackEntry& entry = **site.plugstack;
  const PluginFile& plugin = entry.plugin;
  const std::string& running = site.slurmctld->version;
  if (plugin.path.empty() || !plugin.version)
    return fault(check,
                 fmt::format("{} names {}, which {}{}", entry.where, plugin.name,
                             plugin.unreadable.empty() ? "this host does not have"
                                                       : "cannot be read: " + plugin.unreadable,
                             entry.required ? "; as it is required, no job can start here" : ""),
                 {fmt::format("make install   # in Swell's source, on {}", site.host)});
  if (*plugin.version >> 8 != version_number(running) >> 8)
    return fault(check,
                 fmt::format("{} was built for Slurm {}, but {} runs: sbatch and srun skip it",
                             plugin.path, version_text(*plugin.version), running),
                 {rebuild(running)});
  if (entry.required)
    return warning(
        check,
        fmt::format(
            "it is required in {}: a host without the file then refuses every submission and every step of all users",
            entry.where),
        {fmt::format(
            "sed -i 's/^ *required\\(.*spank_swell.so\\)/optional\\1/' {}   # on every host",
            entry.where)});
  return good(check, fmt::format("{}, {} in {}", plugin.path,
                                 entry.required ? "required" : "optional", entry.where));
}

}  // namespace

void check_installation(const Site& site, Findings& findings) {
  findings.push_back(check_swell_conf(site));
  // Hosts other than slurmctld's are checked only if it cannot be asked with their PluginDir.
  if (site.on_controller() || site.cannot_ask)
    if (auto finding = check_plugin_dir(site)) findings.push_back(std::move(*finding));
  // Errors that keep slurmctld from starting come first: later findings ask for restarts.
  findings.push_back(check_job_submit(site));
  findings.push_back(check_scheduler(site));
  for (const PluginFile& plugin : site.slurmctld_plugins)
    findings.push_back(check_plugin(site, plugin));
  findings.push_back(check_select(site));
  findings.push_back(check_spank(site));
}

}  // namespace swell::tools::doctor
