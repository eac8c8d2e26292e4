// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/deadline.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <fmt/format.h>
#include <string>

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

namespace {

std::string why_not(const char* text) {
  const auto read = Deadline::parse(text);
  return read ? "" : read.error().message();
}

void set_zone(const char* zone) {
  setenv("TZ", zone, 1);
  tzset();
}

/// Central European time, without a file of the host: an hour more from the last Sunday of March
/// at 2:00 to the last Sunday of October at 3:00.
constexpr const char* kBerlin = "CET-1CEST,M3.5.0,M10.5.0/3";

}  // namespace

Test(deadline, a_time_that_the_clocks_skip_is_refused) {
  set_zone(kBerlin);
  cr_assert_eq(at("2026-03-29T01:59:59"), 1774745999);
  cr_assert_eq(at("2026-03-29T03:00"), 1774746000);
  for (const char* skipped : {"2026-03-29T02:00", "2026-03-29T02:30", "2026-03-29T02:59:59"})
    cr_assert_eq(why_not(skipped),
                 fmt::format("deadline={} never comes on this host, whose clocks skip that hour; "
                             "give another time, or one in UTC with a Z at its end",
                             skipped));
  cr_assert_eq(at("2026-03-29T02:30Z"), 1774751400);
  set_zone("UTC0");
  cr_assert_eq(at("2026-03-29T02:30"), 1774751400);
}

Test(deadline, a_time_that_the_clocks_show_twice_is_refused_with_both) {
  set_zone(kBerlin);
  cr_assert_eq(at("2026-10-25T01:59:59"), 1792886399);
  cr_assert_eq(at("2026-10-25T03:00"), 1792893600);
  cr_assert_eq(
      why_not("2026-10-25T02:30"),
      std::string("deadline=2026-10-25T02:30 comes twice on this host, whose clocks are set back; "
                  "give 2026-10-25T00:30:00Z or 2026-10-25T01:30:00Z"));
  cr_assert_eq(at("2026-10-25T00:30:00Z"), 1792888200);
  // The other half of the world, where summer time ends in April, by half an hour.
  set_zone("LHST-10:30LHDT-11,M10.1.0,M4.1.0");
  cr_assert_neq(why_not("2026-04-05T01:45").find("2026-04-04T14:45:00Z or 2026-04-04T15:15:00Z"),
                std::string::npos, "%s", why_not("2026-04-05T01:45").c_str());
  cr_assert_gt(at("2026-04-05T02:00"), 0);
  cr_assert_neq(why_not("2026-10-04T02:15").find("never comes"), std::string::npos);
  const auto refused = ElasticSpec::parse("deadline=2026-10-04T02:15");
  cr_assert(refused.error().message().starts_with("--elastic: deadline=2026-10-04T02:15 never"),
            "%s", refused.error().message().c_str());
}

Test(deadline, its_text_is_read_back_to_the_same) {
  for (const char* text : {"6h", "1d1s", "2026-12-01T08:00:30Z", "2026-12-01T08:00"}) {
    const Deadline read = *Deadline::parse(text);
    cr_assert(Deadline::parse(read.text()).value() == read, "%s", read.text().c_str());
  }
  for (const char* text : {"6h", "1d1s", "1d12h30m", "90m"})
    cr_assert_eq(Deadline::parse(Deadline::parse(text)->text())->after_s,
                 Deadline::parse(text)->after_s);
  cr_assert_eq(Deadline::parse("86400s")->text(), std::string("1d"));
  cr_assert_eq(Deadline::parse("90m")->text(), std::string("1h30m"));
  cr_assert((Deadline::parse("6h")->from(1000) == Deadline{0, 1000 + 6 * 3600}));
  cr_assert((Deadline{0, 5000}.from(1000) == Deadline{0, 5000}));
}

Test(deadline, the_option_takes_it_and_says_what_it_means) {
  const auto spec = ElasticSpec::parse("deadline=6h,mode=live");
  cr_assert(spec.ok());
  cr_assert_eq(spec->text(), std::string("consistency=relaxed,mode=live,grace=30,deadline=6h"));
  cr_assert(ElasticSpec::parse(spec->text()).value() == *spec);
  const auto said = advice(*spec, 4, {});
  cr_assert_eq(said.size(), 1u);
  cr_assert_neq(said[0].find("--steps"), std::string::npos);
  const auto refused = ElasticSpec::parse("deadline=soon");
  cr_assert_not(refused.ok());
  cr_assert_neq(refused.error().message().find("deadline=soon is not valid"), std::string::npos);
}
