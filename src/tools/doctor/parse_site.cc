// SPDX-License-Identifier: GPL-2.0-or-later
// Parts of gather_site() that read text and files.
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <glob.h>
#include <sstream>
#include <unistd.h>

#include "control/input_file.h"
#include "core/number.h"
#include "core/slurm_text/duration.h"
#include "tools/doctor/elf_symbol.h"
#include "tools/doctor/gather.h"

namespace swell::tools::doctor {

const char* const kQosFormat =
    "Name,Preempt,PreemptMode,GraceTime,PreemptExemptTime,UsageFactor,Priority,Flags,"
    "GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmitJobs,GrpWall,MaxTRESPerJob,MaxTRESPerNode,MaxTRESMinsPerJob,"
    "MaxTRESPerUser,MaxTRESPerAccount,MaxJobsPerUser,MaxJobsPerAccount,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,"
    "MaxWall,MinTRESPerJob";
const char* const kAssociationFormat =
    "Account,User,QOS,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpJobs,GrpSubmit,GrpWall,MaxTRES,MaxTRESPerNode,"
    "MaxTRESMins,MaxJobs,MaxSubmit,MaxWall";

namespace {

constexpr std::size_t kFirstLimit = 8;
/// The names of kAssociationFormat's limits in a QOS.
constexpr std::array<const char*, 12> kAssociationLimits = {
    "GrpTRES",           "GrpTRESMins",    "GrpTRESRunMins",       "GrpJobs",
    "GrpSubmitJobs",     "GrpWall",        "MaxTRESPerJob",        "MaxTRESPerNode",
    "MaxTRESMinsPerJob", "MaxJobsPerUser", "MaxSubmitJobsPerUser", "MaxWall"};
constexpr std::size_t kFirstAssociationLimit = 3;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

std::vector<std::string> words(const std::string& comma_list) {
  std::vector<std::string> result;
  for (std::string& word : split(comma_list, ','))
    if (!word.empty()) result.push_back(std::move(word));
  return result;
}

PluginFile plugin_at(const std::string& name, const std::string& path) {
  PluginFile plugin;
  plugin.name = name;
  if (access(path.c_str(), R_OK) != 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      plugin.unreadable = fmt::format("{}: {}", path, std::strerror(errno));
    return plugin;
  }
  plugin.path = path;
  plugin.version = read_elf_constant(path, "plugin_version");
  return plugin;
}

std::vector<std::string> matching(const std::string& pattern) {
  std::vector<std::string> paths;
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

/// Reads one file. Returns nullopt if no line of it names the plugin. `depth` ends cycles of
/// includes.
Result<std::optional<PlugstackEntry>> look_in(const std::string& file,
                                              const std::string& plugin_dir, int depth) {
  const auto text = control::read_regular(file);
  if (!text) return text.error();
  std::istringstream in(*text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line.substr(0, line.find('#')));
    std::string kind, path;
    if (!(fields >> kind >> path)) continue;
    if (kind == "include" && depth > 0) {
      const std::string pattern =
          path.starts_with('/') ? path : file.substr(0, file.rfind('/') + 1) + path;
      for (const std::string& included : matching(pattern))
        if (auto entry = look_in(included, plugin_dir, depth - 1); entry && entry->has_value())
          return entry;
    }
    if ((kind != "required" && kind != "optional") || !path.ends_with("spank_swell.so")) continue;
    PlugstackEntry entry;
    entry.required = kind == "required";
    entry.where = file;
    for (std::string argument; fields >> argument;)
      if (argument == "topology=off") entry.publishes = false;
    entry.plugin = path.starts_with('/') ? plugin_at(path, path) : find_plugin(path, plugin_dir);
    return std::optional<PlugstackEntry>(std::move(entry));
  }
  return std::optional<PlugstackEntry>{};
}

}  // namespace

PluginFile find_plugin(const std::string& name, const std::string& plugin_dir) {
  PluginFile none;
  none.name = name;
  for (const std::string& folder : split(plugin_dir, ':')) {
    if (folder.empty()) continue;
    PluginFile plugin = plugin_at(name, folder + "/" + name);
    if (!plugin.path.empty()) return plugin;
    if (none.unreadable.empty()) none.unreadable = plugin.unreadable;
  }
  return none;
}

std::vector<std::string> missing_folders(const std::string& plugin_dir) {
  std::vector<std::string> missing;
  for (const std::string& folder : split(plugin_dir, ':'))
    if (!folder.empty() && access(folder.c_str(), F_OK) != 0 &&
        (errno == ENOENT || errno == ENOTDIR))
      missing.push_back(folder);
  return missing;
}

std::vector<NamedPlugin> named_plugins(const slurm::ControllerConfig& config) {
  std::vector<NamedPlugin> named;
  const auto add = [&](const char* key, const std::string& word, const std::string& kind) {
    const std::string name = word.starts_with(kind + "/") ? word.substr(kind.size() + 1) : word;
    NamedPlugin one{key, word, find_plugin(kind + "_" + name + ".so", config.plugin_dir), {}};
    for (const std::string& folder : split(config.plugin_dir, ':'))
      for (const std::string& path : matching(folder + "/" + kind + "_*.so")) {
        const std::string file = path.substr(path.rfind('/') + kind.size() + 2);
        one.others.push_back(file.substr(0, file.size() - 3));
      }
    named.push_back(std::move(one));
  };
  if (config.auth_type.starts_with("auth/")) add("AuthType", config.auth_type, "auth");
  for (const std::string& word : words(config.job_submit_plugins))
    if (word != "(null)") add("JobSubmitPlugins", word, "job_submit");
  return named;
}

PluginFile find_shadow(const std::string& name, const std::string& plugin_dir, bool& comes_first) {
  comes_first = true;
  for (const std::string& folder : split(plugin_dir, ':')) {
    const PluginFile found = find_plugin(name, folder);
    if (found.path.empty()) continue;
    if (const auto called = read_elf_text(found.path, "plugin_name");
        called && called->starts_with("Swell"))
      return found;
    comes_first = false;
  }
  PluginFile none;
  none.name = name;
  return none;
}

Result<std::optional<PlugstackEntry>> plugstack_entry(const std::string& path,
                                                      const std::string& plugin_dir) {
  return look_in(path, plugin_dir, 8);
}

Result<Accounting> accounting_from(const std::string& qos_rows,
                                   const std::string& association_rows) {
  Accounting accounting;
  const std::vector<std::string> names = split(kQosFormat, ',');
  std::istringstream qos_in(qos_rows);
  for (std::string line; std::getline(qos_in, line);) {
    const std::vector<std::string> fields = split(line, '|');
    if (fields.size() != names.size())
      return Error(fmt::format("sacctmgr printed \"{}\": {} fields, {} expected", line,
                               fields.size(), names.size()));
    Qos qos;
    qos.name = fields[0];
    qos.preempt = words(fields[1]);
    qos.preempt_mode = fields[2];
    qos.grace_s = slurm_text::seconds_of(fields[3]);
    qos.exempt_s = slurm_text::seconds_of(fields[4]);
    qos.usage_factor = read_number<double>(fields[5]).value_or(1);
    qos.priority = read_number<std::int64_t>(fields[6]).value_or(0);
    qos.flags = words(fields[7]);
    for (std::size_t i = kFirstLimit; i < fields.size(); ++i)
      if (!fields[i].empty()) qos.limits.emplace_back(names[i], fields[i]);
    accounting.qos.push_back(std::move(qos));
  }
  std::istringstream associations_in(association_rows);
  for (std::string line; std::getline(associations_in, line);) {
    const std::vector<std::string> fields = split(line, '|');
    constexpr std::size_t expected = kFirstAssociationLimit + kAssociationLimits.size();
    if (fields.size() != expected)
      return Error(fmt::format("sacctmgr printed \"{}\": {} fields, {} expected", line,
                               fields.size(), expected));
    Association association{fields[0], fields[1], words(fields[2]), {}};
    for (std::size_t i = kFirstAssociationLimit; i < expected; ++i)
      if (!fields[i].empty())
        association.limits.emplace_back(kAssociationLimits[i - kFirstAssociationLimit], fields[i]);
    accounting.associations.push_back(std::move(association));
  }
  return accounting;
}

}  // namespace swell::tools::doctor
