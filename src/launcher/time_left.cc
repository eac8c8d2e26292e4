// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/time_left.h"

#include <sstream>

#include "core/number.h"

namespace swell::launcher {

namespace {

/// Reads "30", "2:03", "1:02:03" or "4-01:02:03".
std::optional<double> seconds_in(const std::string& text) {
  std::string rest = text;
  double days = 0;
  if (const auto dash = rest.find('-'); dash != rest.npos) {
    const auto count = read_number<unsigned>(rest.substr(0, dash));
    if (!count) return std::nullopt;
    days = *count;
    rest = rest.substr(dash + 1);
  }
  double seconds = 0;
  int parts = 0;
  std::istringstream words(rest);
  for (std::string word; std::getline(words, word, ':'); ++parts) {
    const auto count = read_number<unsigned>(word);
    if (!count) return std::nullopt;
    seconds = seconds * 60 + *count;
  }
  if (parts == 0 || parts > 3) return std::nullopt;
  return days * 86'400 + seconds;
}

}  // namespace

std::vector<std::string> time_left_command(JobId job) {
  return {"squeue", "--noheader", "--states=all", "--jobs=" + std::to_string(job),
          "--format=%A %L"};
}

std::optional<TimeLeft> read_time_left(const std::string& output, JobId job) {
  std::istringstream lines(output);
  for (std::string id, left; lines >> id >> left;) {
    if (id != std::to_string(job)) continue;  // other tasks of its array
    if (left == "UNLIMITED") return TimeLeft{};
    if (const auto seconds = seconds_in(left)) return TimeLeft{seconds};
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace swell::launcher
