// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/deadline.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <vector>

#include "core/number.h"

namespace swell::control {

namespace {

/// Units of a duration, in seconds.
constexpr std::array<std::pair<char, std::int64_t>, 4> kUnits = {
    {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};

/// Reads a whole number of `digits` digits at the front of `text`, and removes it.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  const auto number = read_whole<int>(text.substr(0, digits));
  text.remove_prefix(digits);
  return number;
}

Error not_valid(std::string_view text) {
  return Error(fmt::format(
      "deadline={} is not valid; deadline must be a time from the submission on, from 60s to 366d "
      "(deadline=6h, deadline=1d12h), or a date and time (deadline=2026-12-01T08:00)",
      text));
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

/// Returns whether `a` and `b` have the same date and time of day.
bool same_clock(const std::tm& a, const std::tm& b) {
  return a.tm_year == b.tm_year && a.tm_mon == b.tm_mon && a.tm_mday == b.tm_mday &&
         a.tm_hour == b.tm_hour && a.tm_min == b.tm_min && a.tm_sec == b.tm_sec;
}

/// Returns the Unix times at which the clock of this host shows `parts`, in rising order: none if
/// daylight saving skips that time, two if it repeats it. `utc`: the same date and time of day read
/// as UTC. Assumes that clocks change at most once within two days.
std::vector<std::time_t> local_times(const std::tm& parts, std::time_t utc) {
  constexpr std::time_t kDay_s = 86400;
  std::vector<std::time_t> found;
  tzset();
  for (const std::time_t near : {utc - kDay_s, utc + kDay_s}) {
    std::tm shown{};
    if (localtime_r(&near, &shown) == nullptr) continue;
    const std::time_t at = utc - shown.tm_gmtoff;
    if (localtime_r(&at, &shown) == nullptr || !same_clock(shown, parts)) continue;
    if (std::find(found.begin(), found.end(), at) == found.end()) found.push_back(at);
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Reads "2026-12-01T08:00", with ":SS" or without, with "Z" or without.
Result<std::time_t> time_from(std::string_view text) {
  const std::string_view whole = text;
  const Error is_none = not_valid(whole);
  std::tm parts{};
  const auto year = take_number(text, 4);
  if (!year || !take(text, '-')) return is_none;
  const auto month = take_number(text, 2);
  if (!month || !take(text, '-')) return is_none;
  const auto day = take_number(text, 2);
  if (!day || !take(text, 'T')) return is_none;
  const auto hour = take_number(text, 2);
  if (!hour || !take(text, ':')) return is_none;
  const auto minute = take_number(text, 2);
  std::optional<int> second = 0;
  if (take(text, ':')) second = take_number(text, 2);
  const bool is_utc = take(text, 'Z');
  if (!minute || !second || !text.empty()) return is_none;
  parts.tm_year = *year - 1900;
  parts.tm_mon = *month - 1;
  parts.tm_mday = *day;
  parts.tm_hour = *hour;
  parts.tm_min = *minute;
  parts.tm_sec = *second;
  const std::tm given = parts;
  const std::time_t utc = timegm(&parts);
  // mktime() accepts values out of range, and turns the 31st of November into the 1st of December.
  if (!same_clock(parts, given)) return is_none;
  const std::vector<std::time_t> times = is_utc ? std::vector{utc} : local_times(given, utc);
  if (times.empty())
    return Error(fmt::format(
        "deadline={} never comes on this host, whose clocks skip that hour; give another time, or "
        "one in UTC with a Z at its end",
        whole));
  if (times.size() > 1)
    return Error(fmt::format(
        "deadline={} comes twice on this host, whose clocks are set back; give {} or {}", whole,
        Deadline{0, times[0]}.text(), Deadline{0, times[1]}.text()));
  return times[0] > 0 ? Result<std::time_t>(times[0]) : is_none;
}

/// Reads "1d12h": numbers with units, each unit once and in falling order.
std::optional<std::int64_t> duration_from(std::string_view text) {
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

Result<Deadline> Deadline::parse(std::string_view text) {
  if (const auto after_s = duration_from(text)) return Deadline{*after_s, 0};
  const auto at = time_from(text);
  if (!at) return at.error();
  return Deadline{0, *at};
}

std::string Deadline::text() const {
  if (at == 0) {
    std::string text;
    std::int64_t left_s = after_s;
    for (const auto& [unit, size_s] : kUnits) {
      if (left_s >= size_s) text += fmt::format("{}{}", left_s / size_s, unit);
      left_s %= size_s;
    }
    return text;
  }
  std::tm parts{};
  gmtime_r(&at, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace swell::control
