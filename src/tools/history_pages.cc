// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/history_pages.h"

namespace swell::tools {

Result<Json> all_pages(const std::function<Result<Json>(std::int64_t after)>& page) {
  Json events = Json::array();
  for (std::int64_t after = 0;;) {
    Result<Json> found = page(after);
    if (!found) return found;
    for (const Json& event : found->at("events").items()) {
      if (const auto id = event.integer_at("id", 1, std::int64_t{1} << 53)) after = *id;
      events.append(event);
    }
    const auto more = found->bool_at("more");
    if (!more) return more.error();
    if (!*more)
      return Json::object(
          {{"job", found->at("job")}, {"jobs", found->at("jobs")}, {"events", events}});
  }
}

Result<Json> whole_history(control::JobId job, bool with_profiles, const Asks& asks) {
  return all_pages([&](std::int64_t after) -> Result<Json> {
    control::Ask ask;
    ask.job = job;
    ask.what = "history";
    ask.number = static_cast<int>(after);
    ask.profiles = with_profiles;
    const Result<control::Answer> answer = asks(ask);
    if (!answer) return answer.error();
    return answer->details;
  });
}

Result<Json> recent_history(control::JobId job, int count, const Asks& asks) {
  control::Ask ask;
  ask.job = job;
  ask.what = "history";
  ask.last = count;
  const Result<control::Answer> answer = asks(ask);
  if (!answer) return answer.error();
  const auto more = answer->details.bool_at("more");
  if (!more) return more.error();
  // "more" comes from an older controller, which has begun with the first events.
  if (*more) return whole_history(job, false, asks);
  return answer->details;
}

}  // namespace swell::tools
