// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/companion_check.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <strings.h>
#include <vector>

#include "control/tag.h"

namespace swell::launcher {

namespace {

/// Returns the lines of one job, without leading blanks. A field's name counts only where Slurm
/// writes it: at the beginning of a line, or behind fields without free text.
std::vector<std::string_view> lines_of(std::string_view text, control::JobId job) {
  const std::string first = fmt::format("JobId={} ", job);
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (lines.empty() ? line.starts_with(first) : !line.empty()) lines.push_back(line);
    else if (!lines.empty()) break;
  }
  return lines;
}

/// Returns the value of `key` in the line that begins with `begin`, up to `next`: accounts and QOS
/// may have blanks in their names. nullopt if there is none.
std::optional<std::string> value_in(const std::vector<std::string_view>& lines,
                                    std::string_view begin, std::string_view key,
                                    std::string_view next = " ") {
  for (const std::string_view line : lines) {
    if (!line.starts_with(begin)) continue;
    for (std::size_t at = line.find(key); at != line.npos; at = line.find(key, at + 1)) {
      if (at > 0 && line[at - 1] != ' ') continue;
      const std::string_view rest = line.substr(at + key.size());
      return std::string(rest.substr(0, rest.find(next)));
    }
  }
  return std::nullopt;
}

bool is_none(const std::optional<std::string>& value) {
  return !value || value->empty() || *value == "(null)";
}

}  // namespace

std::string shown_name(std::string_view shown, control::JobId job, std::string otherwise) {
  const auto lines = lines_of(shown, job);
  if (lines.empty()) return otherwise;
  constexpr std::string_view key = " JobName=";
  const std::size_t at = lines.front().find(key);
  return at != lines.front().npos ? std::string(lines.front().substr(at + key.size())) : otherwise;
}

Result<void> check_companion(std::string_view shown, control::JobId companion,
                             control::JobId parent, const control::Offer& offer) {
  const auto lines = lines_of(shown, companion);
  if (lines.empty()) return Error("slurmctld did not say what it has allocated");
  std::optional<control::Tag> tag;
  for (const std::string_view line : lines)
    if (line.starts_with("AdminComment=") && !tag) tag = control::Tag::find(line);
  if (!tag || tag->number("parent") != std::int64_t{parent} || tag->get("grant") != offer.nonce)
    return Error(
        "another plugin of job_submit changed its AdminComment (it must leave jobs alone whose "
        "name begins with \"swell-\")");
  const auto changed = [](const char* what, const std::string& to, const std::string& from) {
    return Error(
        fmt::format("another plugin of job_submit changed its {} from \"{}\" to \"{}\" (it must "
                    "leave jobs alone whose name begins with \"swell-\")",
                    what, from, to));
  };
  const auto differs = [](const std::optional<std::string>& value, const std::string& offered) {
    return value && !offered.empty() && strcasecmp(value->c_str(), offered.c_str()) != 0;
  };
  if (const std::string name = shown_name(shown, companion, offer.name); name != offer.name)
    return changed("name", name, offer.name);
  if (const auto qos = value_in(lines, "Priority=", "QOS=", " WCKey="); differs(qos, offer.qos))
    return changed("QOS", *qos, offer.qos);
  if (const auto partition = value_in(lines, "Partition=", "Partition=");
      differs(partition, offer.partition))
    return changed("partition", *partition, offer.partition);
  if (const auto account = value_in(lines, "Priority=", "Account=", " QOS=");
      differs(account, offer.account))
    return changed("account", *account, offer.account);
  if (const auto licences = value_in(lines, "OverSubscribe=", "Licenses="); !is_none(licences))
    return changed("licences", *licences, "");
  if (const auto reservation = value_in(lines, "Reservation=", "Reservation=");
      !is_none(reservation))
    return changed("reservation", *reservation, "");
  return {};
}

}  // namespace swell::launcher
