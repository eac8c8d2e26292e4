// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/history_rows.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::tools;

namespace {

std::string shown(const char* events) {
  const auto json = Json::parse(std::string("{\"events\": [") + events + "]}");
  cr_assert(json.ok());
  return history_table(*json);
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

Test(history_rows, one_of_a_thing_is_in_the_singular) {
  const std::string text = shown(
      R"({"time": 1, "event": "pause", "mode": "live", "stopped_s": 0.25, "workers": 1},
         {"time": 2, "event": "pause", "mode": "live", "stopped_s": 0.25, "workers": 2},
         {"time": 3, "event": "profile", "samples_per_s": 10, "gpus": 1},
         {"time": 4, "event": "asked", "details": {"what": "max", "number": 1}})");
  cr_assert(has(text, "1 worker from then on") && has(text, "2 workers from then on"), "%s",
            text.c_str());
  cr_assert(has(text, "on 1 GPU\n") && has(text, "at most 1 GPU\n"), "%s", text.c_str());
  const auto changes = last_changes(
      Json::parse(
          R"({"events": [{"time": 1, "event": "companion-started", "gpus": 1, "node": "n1"}]})")
          .value(),
      1);
  cr_assert_eq(changes.size(), 1u);
  cr_assert(has(changes[0], "it was lent 1 GPU on n1"), "%s", changes[0].c_str());
}

Test(history_rows, no_row_is_without_content) {
  for (const char* event : {"agent-lost", "companion-ended", "companion-started", "grant-expired",
                            "job-ended", "no-growth", "plan"}) {
    const std::string text =
        shown((std::string(R"({"time": 1, "event": ")") + event + "\"}").c_str());
    const std::string row = text.substr(text.find('\n') + 1);
    const std::size_t end = row.find(event) + std::string(event).size();
    cr_assert_neq(row.find_first_not_of(" \n", end), std::string::npos, "%s", text.c_str());
  }
  cr_assert(has(shown(R"({"time": 1, "event": "job-started", "details": {"basic_gpus": 1}})"),
                "it has 1 GPU of its own"));
  cr_assert(has(shown(R"({"time": 1, "event": "agent-left", "details": {"exit_code": 3}})"),
                "its program has ended with exit code 3"));
}
