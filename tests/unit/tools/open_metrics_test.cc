// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/open_metrics.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::tools;

namespace {

Json metrics() {
  return Json::parse(R"({"families": [
    {"name": "swell_grants", "type": "counter", "help": "Grants.", "samples":
      [{"labels": {"outcome": "ta\"ken"}, "value": 3}]},
    {"name": "swell_up", "type": "gauge", "help": "Up.", "samples": [{"labels": {}, "value": 1}]},
    {"name": "swell_pause_seconds", "type": "histogram", "help": "Pauses.", "samples":
      [{"labels": {"mode": "live"}, "histogram":
        {"bounds": [0.5, 1], "counts": [1, 2, 2], "sum": 1.25, "count": 2}}]}]})")
      .value();
}

}  // namespace

Test(open_metrics, is_written_as_openmetrics_wants_it) {
  const std::string text = metrics_text(metrics(), MetricsFormat::open_metrics);
  cr_assert_str_eq(text.c_str(),
                   "# HELP swell_grants Grants.\n# TYPE swell_grants counter\n"
                   "swell_grants_total{outcome=\"ta\\\"ken\"} 3\n"
                   "# HELP swell_up Up.\n# TYPE swell_up gauge\nswell_up 1\n"
                   "# HELP swell_pause_seconds Pauses.\n# TYPE swell_pause_seconds histogram\n"
                   "swell_pause_seconds_bucket{mode=\"live\",le=\"0.5\"} 1\n"
                   "swell_pause_seconds_bucket{mode=\"live\",le=\"1.0\"} 2\n"
                   "swell_pause_seconds_bucket{mode=\"live\",le=\"+Inf\"} 2\n"
                   "swell_pause_seconds_sum{mode=\"live\"} 1.25\n"
                   "swell_pause_seconds_count{mode=\"live\"} 2\n# EOF\n");
}

Test(open_metrics, counters_have_their_whole_name_in_the_older_format) {
  const std::string text = metrics_text(metrics(), MetricsFormat::prometheus);
  cr_assert(text.find("# TYPE swell_grants_total counter\n") != std::string::npos);
  cr_assert(text.find("# EOF") == std::string::npos);
}
