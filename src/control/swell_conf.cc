// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/swell_conf.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "base/lower.h"
#include "control/input_file.h"
#include "core/number.h"

namespace swell::control {

namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// A description of the allowed values; nothing if the value is good.
using Allowed = std::optional<std::string>;

Allowed seconds(double& into, std::string_view value, double min, double max) {
  const auto read = read_number<double>(value);
  if (!read || !std::isfinite(*read) || *read < min || *read > max)
    return fmt::format("a number of seconds from {:g} to {:g}", min, max);
  into = *read;
  return std::nullopt;
}

Allowed whole(int& into, std::string_view value, int min, int max) {
  const auto read = read_number<int>(value);
  if (!read || *read < min || *read > max)
    return fmt::format("a whole number from {} to {}", min, max);
  into = *read;
  return std::nullopt;
}

Allowed name(std::string& into, std::string_view value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == ':' || c == '/';
  });
  if (!plain) return "a name without spaces";
  into = value;
  return std::nullopt;
}

Allowed limits(LentLimits& into, std::string_view value) {
  auto read = LentLimits::parse(value);
  if (!read) return read.error().message();
  into = std::move(*read);
  return std::nullopt;
}

Allowed yes_or_no(bool& into, std::string_view value) {
  const std::string word = lower(value);
  if (word != "yes" && word != "no") return "yes or no";
  into = word == "yes";
  return std::nullopt;
}

struct Key {
  const char* name;
  Allowed (*read)(SwellConf&, std::string_view);
};

const Key kKeys[] = {
    {"Elasticity",
     [](SwellConf& c, std::string_view v) -> Allowed {
       const std::string word = lower(v);
       if (word != "yes" && word != "no" && word != "drain") return "yes, no or drain";
       c.enabled = word != "no";
       c.draining = word == "drain";
       return std::nullopt;
     }},
    {"BaseScheduler",
     [](SwellConf& c, std::string_view v) -> Allowed {
       if (v == "sched/swell" || !v.starts_with("sched/"))
         return "one of Slurm's schedulers (sched/backfill, sched/builtin)";
       return name(c.base_scheduler, v);
     }},
    {"Policy", [](SwellConf& c, std::string_view v) { return name(c.policy, v); }},
    {"Objective",
     [](SwellConf& c, std::string_view v) -> Allowed {
       const auto read = policy::objective_named(lower(v));
       if (!read) return "completion, throughput, deadlines or fairness";
       c.objective = *read;
       return std::nullopt;
     }},
    {"Aggressiveness",
     [](SwellConf& c, std::string_view v) -> Allowed {
       const auto read = read_number<double>(v);
       if (!read || !std::isfinite(*read) || *read < 0 || *read > 100)
         return "a number from 0 to 100";
       c.aggressiveness = *read;
       return std::nullopt;
     }},
    {"Fairness",
     [](SwellConf& c, std::string_view v) -> Allowed {
       const auto read = read_number<double>(v);
       if (!read || !std::isfinite(*read) || *read < 0 || *read > 10)
         return "a number from 0 to 10";
       c.fairness = *read;
       return std::nullopt;
     }},
    {"ExpansionQOS", [](SwellConf& c, std::string_view v) { return name(c.expansion_qos, v); }},
    {"ExpansionPartition",
     [](SwellConf& c, std::string_view v) { return name(c.expansion_partition, v); }},
    {"ControlAddress", [](SwellConf& c, std::string_view v) { return name(c.control_address, v); }},
    {"ControlPort",
     [](SwellConf& c, std::string_view v) { return whole(c.control_port, v, 1, 65535); }},
    {"PollInterval",
     [](SwellConf& c, std::string_view v) { return seconds(c.poll_interval_s, v, 0.1, 60); }},
    {"GrowthInterval",
     [](SwellConf& c, std::string_view v) { return seconds(c.growth_interval_s, v, 0, 86400); }},
    {"GrantExpiry",
     [](SwellConf& c, std::string_view v) { return seconds(c.grant_expiry_s, v, 1, 600); }},
    {"AgentTimeout",
     [](SwellConf& c, std::string_view v) { return seconds(c.agent_timeout_s, v, 1, 3600); }},
    {"LeastRemaining",
     [](SwellConf& c, std::string_view v) { return seconds(c.min_remaining_s, v, 60, 864000); }},
    {"ProfileWait",
     [](SwellConf& c, std::string_view v) { return seconds(c.profile_wait_s, v, 0, 86400); }},
    {"LendWithoutProfile",
     [](SwellConf& c, std::string_view v) { return yes_or_no(c.lends_without_profile, v); }},
    {"MaxShortfall",
     [](SwellConf& c, std::string_view v) -> Allowed {
       const auto read = read_number<double>(v);
       if (!read || !std::isfinite(*read) || *read < 0.1 || *read > 1)
         return "a number from 0.1 to 1";
       c.max_shortfall = *read;
       return std::nullopt;
     }},
    {"ScaleUpChance",
     [](SwellConf& c, std::string_view v) -> Allowed {
       const auto read = read_number<double>(v);
       if (!read || !std::isfinite(*read) || *read < 0 || *read > 1) return "a number from 0 to 1";
       c.arrivals.chance = *read;
       return std::nullopt;
     }},
    {"ArrivalWindow",
     [](SwellConf& c, std::string_view v) { return seconds(c.arrivals.window_s, v, 60, 604800); }},
    {"ArrivalGPUs",
     [](SwellConf& c, std::string_view v) { return whole(c.arrivals.gpus, v, 1, 1000000); }},
    {"MaxGPUsPerJob",
     [](SwellConf& c, std::string_view v) { return whole(c.max_gpus_per_job, v, 0, 1000000); }},
    {"MaxLentByAccount",
     [](SwellConf& c, std::string_view v) { return limits(c.max_lent_by_account, v); }},
    {"MaxLentByQOS", [](SwellConf& c, std::string_view v) { return limits(c.max_lent_by_qos, v); }},
    {"MaxGrace",
     [](SwellConf& c, std::string_view v) { return whole(c.max_grace_s, v, 0, 86400); }},
    {"WithholdTime",
     [](SwellConf& c, std::string_view v) { return seconds(c.withhold_s, v, 0, 604800); }},
    {"TypeInterval",
     [](SwellConf& c, std::string_view v) { return seconds(c.type_interval_s, v, 0, 86400); }},
    {"SwitchInterval",
     [](SwellConf& c, std::string_view v) { return seconds(c.switch_interval_s, v, 0, 604800); }},
    {"LowerRequests",
     [](SwellConf& c, std::string_view v) { return yes_or_no(c.lowers_requests, v); }},
    {"HistoryDays",
     [](SwellConf& c, std::string_view v) { return whole(c.history_days, v, 0, 36500); }},
    {"EventLog",
     [](SwellConf& c, std::string_view v) -> Allowed {
       if (!v.starts_with('/')) return "a path from the root (/var/log/slurm/swell-events.jsonl)";
       c.event_log = v;
       return std::nullopt;
     }},
};

Result<void> read_line(SwellConf& config, std::string_view line, std::set<std::string>& seen) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return Error(fmt::format("\"{}\" is not Key=Value", line));
  const std::string_view key_text = trim(line.substr(0, equals));
  const std::string_view value = trim(line.substr(equals + 1));
  const Key* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                [&](const Key& k) { return lower(k.name) == lower(key_text); });
  if (key == std::end(kKeys)) {
    std::vector<const char*> names;
    for (const Key& k : kKeys) names.push_back(k.name);
    return Error(
        fmt::format("unknown key \"{}\"; the keys are {}", key_text, fmt::join(names, ", ")));
  }
  if (!seen.insert(key->name).second)
    return Error(fmt::format("{} is given twice; give it once", key->name));
  if (value.empty()) return Error(fmt::format("{} has no value", key->name));
  if (Allowed allowed = key->read(config, value))
    return Error(fmt::format("{}={} is not valid; it must be {}", key->name, value, *allowed));
  return {};
}

bool list_names(std::string_view list, std::string_view name) {
  if (name.empty()) return false;
  std::istringstream in{std::string(list)};
  for (std::string item; std::getline(in, item, ',');)
    if (lower(trim(item)) == lower(name)) return true;
  return false;
}

}  // namespace

bool ExpansionPlace::named_in(std::string_view qos_list, std::string_view partition_list) const {
  return list_names(qos_list, qos) || list_names(partition_list, partition);
}

ExpansionPlace expansion_place_in(std::string_view text) {
  ExpansionPlace place;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    const std::string_view content = trim(std::string_view(line).substr(0, line.find('#')));
    const std::size_t equals = content.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string key = lower(trim(content.substr(0, equals)));
    if (key == "expansionqos") place.qos = trim(content.substr(equals + 1));
    if (key == "expansionpartition") place.partition = trim(content.substr(equals + 1));
  }
  return place;
}

Result<SwellConf> SwellConf::parse(std::string_view text) {
  SwellConf config;
  std::set<std::string> seen;
  std::istringstream in{std::string(text)};
  int line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    const std::string_view content = trim(std::string_view(line).substr(0, line.find('#')));
    if (content.empty()) continue;
    if (Result<void> read = read_line(config, content, seen); !read)
      return read.error().while_doing(fmt::format("line {}", line_number));
  }
  if (config.enabled && config.expansion_qos.empty() == config.expansion_partition.empty())
    return Error(
        "exactly one of ExpansionQOS (with slurmdbd) and ExpansionPartition (without) must be given");
  return config;
}

Result<SwellConf> SwellConf::load(const std::string& path) {
  const auto text = read_regular(path);
  if (!text) return text.error();
  Result<SwellConf> config = parse(*text);
  if (!config) return config.error().while_doing(path);
  return config;
}

std::string swell_conf_path(std::string_view slurm_conf) {
  const std::size_t slash = slurm_conf.rfind('/');
  return std::string(slash == std::string_view::npos ? std::string_view()
                                                     : slurm_conf.substr(0, slash + 1)) +
         "swell.conf";
}

Result<SwellConf> swell_conf_on_node(const char* own_slurm_conf, std::string_view slurmctlds,
                                     const char* port) {
  std::optional<std::uint16_t> given;
  if (port != nullptr && *port != '\0') {
    given = read_number<std::uint16_t>(port);
    if (given.value_or(0) == 0)
      return Error(fmt::format("SWELL_CONTROL_PORT={}: it must be a port", port));
  }
  SwellConf conf;
  constexpr std::string_view kConfigless = "/run/slurm/conf/slurm.conf";
  for (const std::string_view beside :
       {std::string_view(own_slurm_conf != nullptr ? own_slurm_conf : ""), kConfigless,
        slurmctlds}) {
    const std::string path = swell_conf_path(beside);
    if (beside.empty() || access(path.c_str(), F_OK) != 0) continue;
    auto loaded = SwellConf::load(path);
    if (!loaded && !given) return loaded.error();
    if (loaded) conf = std::move(*loaded);
    if (!conf.enabled && !given) return Error(fmt::format("{} says Elasticity=no", path));
    break;
  }
  if (given) conf.control_port = *given;
  return conf;
}

std::string with_elasticity(std::string_view text, std::string_view value) {
  const std::string wanted = fmt::format("Elasticity={}", value);
  std::string result;
  bool done = false;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    const std::string_view content = trim(std::string_view(line).substr(0, line.find('#')));
    const bool is_it = lower(trim(content.substr(0, content.find('=')))) == "elasticity";
    if (is_it && done) continue;
    result += (is_it ? wanted : line) + "\n";
    done = done || is_it;
  }
  return done ? result : result + wanted + "\n";
}

}  // namespace swell::control
