// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/history_rows.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include <map>
#include <vector>

#include "core/count_of.h"
#include "tools/output.h"
#include "tools/text_table.h"

namespace swell::tools {

namespace {

constexpr double kMax = 1e18;

std::string text_in(const Json& row, const char* key) {
  const auto text = row.string_at(key);
  return text ? *text : std::string();
}

double number_in(const Json& row, const char* key) {
  const auto number = row.number_at(key, -kMax, kMax);
  return number ? *number : 0;
}

std::string time_of(const Json& row) {
  const auto time = static_cast<std::time_t>(number_in(row, "time"));
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&time, &parts) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

/// Returns a sentence for an event without a reason of its own.
std::string plain_words(const Json& row, const std::string& event) {
  const Json details = row.at("details");
  const auto gpus = [&](const char* key) { return count_of(number_in(details, key), "GPU"); };
  if (event == "job-started") return fmt::format("it has {} of its own", gpus("basic_gpus"));
  if (event == "job-ended") return "it has left the queue, or runs anew";
  if (event == "agent-left")
    return fmt::format("its program has ended with exit code {}", number_in(details, "exit_code"));
  if (event == "agent-lost") return "the connection to its swellrun was lost";
  if (event == "no-growth") return "it takes more GPUs again";
  if (event == "grant-expired") return "nobody took it up in time";
  if (event == "companion-started") return "it holds GPUs for the job from now on";
  if (event == "companion-ended") return "its GPUs are back";
  if (event == "plan") return "its program is told another plan";
  return {};
}

/// Returns a sentence for an event: its figures if it has any, else its reason.
std::string figures_of(const Json& row, const std::string& event) {
  if (event == "profile") {
    std::string text = fmt::format("{:.4g} samples a second on {}", number_in(row, "samples_per_s"),
                                   count_of(number_in(row, "gpus"), "GPU"));
    if (row.has("predicted_speedup"))
      text += fmt::format(", {:.2f} times as many as alone, {:.2f} predicted",
                          number_in(row, "measured_speedup"), number_in(row, "predicted_speedup"));
    return text;
  }
  if (event == "pause") {
    std::string text =
        fmt::format("{}, stopped {:.3f} s, {} from then on", text_in(row, "mode"),
                    number_in(row, "stopped_s"), count_of(number_in(row, "workers"), "worker"));
    if (row.has("move_s"))
      text += fmt::format(
          "; wait for the step {:.3f} s, quiesce {:.3f} s, move {:.3f} s, commit {:.3f} s, {} "
          "bytes moved",
          number_in(row, "wait_s"), number_in(row, "quiesce_s"), number_in(row, "move_s"),
          number_in(row, "commit_s"), number_in(row, "bytes_moved"));
    return text;
  }
  if (event == "scale") {
    std::string text;
    for (const Json& point : row.at("table").items()) {
      text +=
          fmt::format("{}{} {:.4g}", text.empty() ? "samples a second: " : ", ",
                      count_of(number_in(point, "gpus"), "GPU"), number_in(point, "samples_per_s"));
      if (point.has("omitted")) text += fmt::format(" (left out: {})", text_in(point, "omitted"));
    }
    return text;
  }
  const std::string reason = text_in(row, "reason");
  return reason.empty() ? plain_words(row, event) : reason;
}

std::string what_of(const Json& row) {
  std::string text = figures_of(row, text_in(row, "event"));
  const Json details = row.at("details");
  if (const std::string by = text_in(details, "by"); !by.empty())
    text = by + (text.empty() ? "" : ": ") + text;
  if (const std::string what = text_in(details, "what"); !what.empty())
    text = what != "max" ? what
           : number_in(details, "number") == 0
               ? "max: as --elastic says"
               : fmt::format("max: at most {}", count_of(number_in(details, "number"), "GPU"));
  return text;
}

}  // namespace

std::string history_table(const Json& history) {
  using Align = TextTable::Align;
  TextTable table({{"TIME"},
                   {"EVENT"},
                   {"COMPANION", Align::right},
                   {"GPUS", Align::right},
                   {"NODE"},
                   {"WHAT"}});
  for (const Json& row : history.at("events").items()) {
    const auto number = [&](const char* key) {
      return row.has(key) ? fmt::format("{}", number_in(row, key)) : std::string();
    };
    table.add({time_of(row), text_in(row, "event"), number("companion"), number("gpus"),
               text_in(row, "node"), what_of(row)});
  }
  return table.empty() ? "Nothing has happened yet.\n" : table.text();
}

std::vector<std::string> last_changes(const Json& history, std::size_t max) {
  static const std::map<std::string, const char*> kWords = {
      {"companion-started", "was lent"},
      {"companion-ended", "has given back"},
      {"companion-lost", "has lost"},
      {"companion-preempted", "loses to Slurm"},
      {"reclaim", "was asked to give back"}};
  std::vector<std::string> lines;
  for (const Json& row : history.at("events").items()) {
    const auto word = kWords.find(text_in(row, "event"));
    if (word == kWords.end()) continue;
    const std::string reason = text_in(row, "reason");
    lines.push_back(line_of("{}: it {} {} on {}{}{}", time_of(row), word->second,
                            count_of(number_in(row, "gpus"), "GPU"), text_in(row, "node"),
                            reason.empty() ? "" : ": ", reason));
  }
  if (lines.size() > max) lines.erase(lines.begin(), lines.end() - static_cast<long>(max));
  return lines;
}

}  // namespace swell::tools
