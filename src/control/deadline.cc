// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/deadline.h"

#include <array>
#include <fmt/format.h>

#include "core/number.h"

namespace swell::control {

namespace {

/// Reads a whole number of `digits` digits at the front of `text`, and removes it.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  const auto number = read_whole<int>(text.substr(0, digits));
  text.remove_prefix(digits);
  return number;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

/// "2026-12-01T08:00", with ":SS" or without, with "Z" or without.
std::optional<std::time_t> time_from(std::string_view text) {
  std::tm parts{};
  const auto year = take_number(text, 4);
  if (!year || !take(text, '-')) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || !take(text, '-')) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day || !take(text, 'T')) return std::nullopt;
  const auto hour = take_number(text, 2);
  if (!hour || !take(text, ':')) return std::nullopt;
  const auto minute = take_number(text, 2);
  std::optional<int> second = 0;
  if (take(text, ':')) second = take_number(text, 2);
  const bool is_utc = take(text, 'Z');
  if (!minute || !second || !text.empty()) return std::nullopt;
  parts.tm_year = *year - 1900;
  parts.tm_mon = *month - 1;
  parts.tm_mday = *day;
  parts.tm_hour = *hour;
  parts.tm_min = *minute;
  parts.tm_sec = *second;
  parts.tm_isdst = -1;
  const std::tm given = parts;
  const std::time_t at = is_utc ? timegm(&parts) : std::mktime(&parts);
  // Both carry what is out of range, such as the 31st of November, over to the next unit.
  const bool exists = at > 0 && parts.tm_mon == given.tm_mon && parts.tm_mday == given.tm_mday &&
                      parts.tm_min == given.tm_min && parts.tm_sec == given.tm_sec;
  return exists ? std::optional(at) : std::nullopt;
}

/// "1d12h": numbers with units, each once and in falling order.
std::optional<std::int64_t> duration_from(std::string_view text) {
  constexpr std::array<std::pair<char, std::int64_t>, 4> kUnits = {
      {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};
  std::int64_t sum = 0;
  std::size_t next = 0;
  while (!text.empty()) {
    const std::size_t digits = text.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos || digits > 9) return std::nullopt;
    const auto number = read_whole<std::int64_t>(text.substr(0, digits));
    while (next < kUnits.size() && kUnits[next].first != text[digits]) ++next;
    if (!number || next == kUnits.size()) return std::nullopt;
    sum += *number * kUnits[next++].second;
    text.remove_prefix(digits + 1);
  }
  return sum >= Deadline::kMin_s && sum <= Deadline::kMax_s ? std::optional(sum) : std::nullopt;
}

}  // namespace

std::optional<Deadline> Deadline::parse(std::string_view text) {
  if (const auto after_s = duration_from(text)) return Deadline{*after_s, 0};
  if (const auto at = time_from(text)) return Deadline{0, *at};
  return std::nullopt;
}

std::string Deadline::text() const {
  if (at == 0) return fmt::format("{}s", after_s);
  std::tm parts{};
  gmtime_r(&at, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace swell::control
