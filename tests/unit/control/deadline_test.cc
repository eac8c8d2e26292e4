// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/deadline.h"

#include <criterion/criterion.h>
#include <cstdlib>

#include "control/elastic_advice.h"
#include "control/elastic_spec.h"

using namespace swell::control;

namespace {

/// All that is read from `text`: -1 where it is refused.
std::int64_t after(const char* text) {
  const auto read = Deadline::parse(text);
  return read && read->at == 0 ? read->after_s : -1;
}

std::time_t at(const char* text) {
  const auto read = Deadline::parse(text);
  return read && read->after_s == 0 ? read->at : -1;
}

}  // namespace

Test(deadline, a_time_from_the_submission_on_has_units) {
  cr_assert_eq(after("6h"), 6 * 3600);
  cr_assert_eq(after("1d12h"), 36 * 3600);
  cr_assert_eq(after("90m30s"), 5430);
  cr_assert_eq(after("60s"), 60);
  for (const char* bad : {"", "6", "h", "59s", "367d", "6h6h", "1m1h", "-1h", "1.5h", "6 h",
                          "6hours", "99999999999d", "0d"})
    cr_assert(!Deadline::parse(bad), "%s", bad);
}

Test(deadline, a_date_is_of_this_host_or_of_utc) {
  cr_assert_eq(at("1970-01-02T00:00Z"), 86400);
  cr_assert_eq(at("2026-12-01T08:00:30Z"), 1796112030);
  setenv("TZ", "UTC-3", 1);
  tzset();
  cr_assert_eq(at("2026-12-01T11:00:30"), 1796112030);
  cr_assert_eq(at("2026-12-01T11:00"), 1796112000);
  for (const char* bad :
       {"2026-12-01", "2026-12-01T08", "2026-12-01 08:00", "2026-13-01T08:00Z", "2026-02-30T08:00Z",
        "2026-12-01T25:00Z", "2026-12-01T08:60Z", "2026-12-01T08:00Zx",
        "2026-12-01T08:00:", "20261201T08:00", "1969-12-01T08:00Z"})
    cr_assert(!Deadline::parse(bad), "%s", bad);
}

Test(deadline, its_text_is_read_back_to_the_same) {
  for (const char* text : {"6h", "1d1s", "2026-12-01T08:00:30Z", "2026-12-01T08:00"}) {
    const Deadline read = *Deadline::parse(text);
    cr_assert(Deadline::parse(read.text()) == read, "%s", read.text().c_str());
  }
  cr_assert((Deadline::parse("6h")->from(1000) == Deadline{0, 1000 + 6 * 3600}));
  cr_assert((Deadline{0, 5000}.from(1000) == Deadline{0, 5000}));
}

Test(deadline, the_option_takes_it_and_says_what_it_means) {
  const auto spec = ElasticSpec::parse("deadline=6h,mode=live");
  cr_assert(spec.ok());
  cr_assert_eq(spec->text(), std::string("consistency=relaxed,mode=live,grace=30,deadline=21600s"));
  cr_assert(ElasticSpec::parse(spec->text()).value() == *spec);
  const auto said = advice(*spec, 4, {});
  cr_assert_eq(said.size(), 1u);
  cr_assert_neq(said[0].find("--steps"), std::string::npos);
  const auto refused = ElasticSpec::parse("deadline=soon");
  cr_assert_not(refused.ok());
  cr_assert_neq(refused.error().message().find("deadline=soon is not valid"), std::string::npos);
}
