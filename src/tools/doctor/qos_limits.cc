// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/qos_limits.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <sstream>

#include "core/slurm_text/duration.h"

namespace swell::tools::doctor {

namespace {

using Limits = std::vector<std::pair<std::string, std::string>>;

const std::string* find(const Limits& limits, const std::string& name) {
  for (const auto& [each, value] : limits)
    if (each == name) return &value;
  return nullptr;
}

/// Returns the amount of a limit: "1-02:00:00" in seconds, "10G" in units of one, "8" as it is.
double amount(const std::string& text) {
  if (text.find(':') != std::string::npos) return static_cast<double>(slurm_text::seconds_of(text));
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end == text.data() + text.size()) return value;
  switch (std::toupper(static_cast<unsigned char>(*end))) {
    case 'K': return value * 1024;
    case 'M': return value * 1024 * 1024;
    case 'G': return value * 1024 * 1024 * 1024;
    case 'T': return value * 1024 * 1024 * 1024 * 1024;
    case 'P': return value * 1024 * 1024 * 1024 * 1024 * 1024;
    default: return value;
  }
}

/// Returns the value of a limit by TRES; its name is empty for a limit without TRES. A larger value
/// is looser: minimum limits are negated.
std::map<std::string, double> by_tres(const std::string& limit, const std::string& value) {
  std::map<std::string, double> result;
  std::istringstream in(value);
  const double sign = limit.starts_with("Min") ? -1 : 1;
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t equals = part.rfind('=');
    if (equals == std::string::npos) result[""] = sign * amount(part);
    else result[part.substr(0, equals)] = sign * amount(part.substr(equals + 1));
  }
  return result;
}

/// Returns whether `own` is at least as tight as `other`; null: no limit, which is not as tight.
bool no_looser(const std::string& limit, const std::string* own, const std::string& other) {
  if (own == nullptr) return false;
  const auto held = by_tres(limit, *own);
  for (const auto& [tres, most] : by_tres(limit, other)) {
    const auto found = held.find(tres);
    if (found == held.end() || found->second > most) return false;
  }
  return true;
}

/// Limit that holds for a user's jobs of one QOS, and the QOS or association that sets it.
struct Held {
  std::string value, by;
  bool by_qos = false;
};

std::optional<Held> held(const std::string& limit, const Qos& qos, const Association& user) {
  if (const std::string* own = find(qos.limits, limit)) return Held{*own, qos.name, true};
  if (const std::string* own = find(user.limits, limit))
    return Held{*own, user.user.empty() ? user.account : user.account + "/" + user.user, false};
  return std::nullopt;
}

/// Returns the largest value of the limit among all other QOS of a user; nullopt if one of them
/// does not have this limit.
std::optional<Held> loosest(const std::string& limit, const Qos& qos, const Association& user,
                            const Accounting& accounting) {
  std::optional<Held> result;
  for (const Qos& each : accounting.qos) {
    if (each.name == qos.name ||
        std::find(user.qos.begin(), user.qos.end(), each.name) == user.qos.end())
      continue;
    const std::optional<Held> here = held(limit, each, user);
    if (!here) return std::nullopt;
    if (!result || no_looser(limit, &result->value, here->value)) result = here;
  }
  return result;
}

bool held_by_partitions(const std::string& limit, const Accounting& accounting,
                        const std::vector<std::string>& partition_qos) {
  if (partition_qos.empty()) return false;
  return std::all_of(partition_qos.begin(), partition_qos.end(), [&](const std::string& name) {
    return std::any_of(accounting.qos.begin(), accounting.qos.end(), [&](const Qos& each) {
      return each.name == name && find(each.limits, limit) != nullptr;
    });
  });
}

std::vector<std::string> all_limits(const Accounting& accounting) {
  std::vector<std::string> names;
  auto add = [&](const Limits& limits) {
    for (const auto& [name, value] : limits)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Qos& each : accounting.qos) add(each.limits);
  for (const Association& each : accounting.associations) add(each.limits);
  return names;
}

/// Returns the value with which sacctmgr removes a limit: -1, for each TRES of a list.
std::string cleared(const std::string& value) {
  std::string result;
  std::istringstream in(value);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t equals = part.rfind('=');
    if (equals == std::string::npos) return "-1";
    result += fmt::format("{}{}=-1", result.empty() ? "" : ",", part.substr(0, equals));
  }
  return result;
}

}  // namespace

std::map<std::string, Loophole> loopholes(const Qos& qos, const Accounting& accounting,
                                          const std::vector<std::string>& partition_qos) {
  std::map<std::string, Loophole> found;
  for (const std::string& limit : all_limits(accounting)) {
    if (held_by_partitions(limit, accounting, partition_qos)) continue;
    for (const Association& user : accounting.associations) {
      if (user.user.empty()) continue;
      const std::optional<Held> usual = loosest(limit, qos, user, accounting);
      if (!usual) continue;
      const std::optional<Held> here = held(limit, qos, user);
      if (no_looser(limit, here ? &here->value : nullptr, usual->value)) continue;
      const auto known = found.find(limit);
      if (known != found.end() && no_looser(limit, &known->second.allowed, usual->value)) continue;
      // A limit of an association holds once the QOS itself does not set this limit.
      found[limit] = {limit, usual->value, usual->by,
                      usual->by_qos ? usual->value : cleared(here->value)};
    }
  }
  return found;
}

bool set_by_others(const std::string& limit, const Qos& qos, const Accounting& accounting) {
  return std::any_of(accounting.associations.begin(), accounting.associations.end(),
                     [&](const Association& user) {
                       if (user.user.empty()) return false;
                       const std::optional<Held> usual = loosest(limit, qos, user, accounting);
                       return usual && usual->by_qos;
                     });
}

}  // namespace swell::tools::doctor
