// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/history_pages.h"

#include <criterion/criterion.h>
#include <vector>

#include "tools/history_rows.h"

using namespace swell;
using namespace swell::tools;

namespace {

Json event(int id, const char* kind) {
  return Json::object({{"id", id}, {"event", kind}, {"time", 5}, {"gpus", 8}, {"node", "node2"}});
}

control::Answer answer(std::vector<Json> events, bool more) {
  return {
      {},
      Json::object(
          {{"job", 10}, {"jobs", Json::array()}, {"events", array_of(events)}, {"more", more}})};
}

}  // namespace

Test(history_pages, the_last_changes_are_asked_for_once) {
  std::vector<control::Ask> asked;
  const auto found = recent_history(10, 6, [&](const control::Ask& ask) -> Result<control::Answer> {
    asked.push_back(ask);
    return answer({event(900, "companion-started"), event(950, "reclaim")}, false);
  });
  cr_assert_eq(asked.size(), 1u);
  cr_assert_eq(asked[0].last, 6);
  cr_assert_eq(last_changes(*found, 6).size(), 2u);
}

Test(history_pages, asks_an_older_controller_for_everything) {
  std::vector<int> asked;
  const auto found = recent_history(10, 1, [&](const control::Ask& ask) -> Result<control::Answer> {
    asked.push_back(ask.number);
    if (ask.number == 0) return answer({event(1, "companion-started"), event(2, "pause")}, true);
    return answer({event(3, "reclaim")}, false);
  });
  const std::vector<int> pages = {0, 0, 2};
  cr_assert(asked == pages);
  const auto lines = last_changes(*found, 1);
  cr_assert_eq(lines.size(), 1u);
  cr_assert_neq(lines[0].find("was asked to give back 8 GPUs on node2"), std::string::npos);
}

Test(history_pages, a_refusal_is_passed_on) {
  const auto found = recent_history(10, 6, [](const control::Ask&) -> Result<control::Answer> {
    return Error("no history is kept: HistoryDays=0 in swell.conf");
  });
  cr_assert_eq(found.error().message(), "no history is kept: HistoryDays=0 in swell.conf");
}
