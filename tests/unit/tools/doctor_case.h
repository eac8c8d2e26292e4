// SPDX-License-Identifier: GPL-2.0-or-later
// What tests of swell doctor expect of a site that they break.
#pragma once

#include <algorithm>
#include <criterion/criterion.h>
#include <functional>
#include <string>

#include "tools/doctor/checks.h"
#include "unit/tools/site_builder.h"

namespace doctor_case {

using namespace swell;
using namespace swell::tools::doctor;
using swell::test::healthy_partition_site;
using swell::test::healthy_site;

inline bool contains(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

/// A way to break a site, what is said of it, and one of the fix lines.
struct Case {
  const char* check;
  Level level;
  std::function<void(Site&)> breaks;
  const char* what;
  const char* fix;
};

inline void expect(Site site, const Case& each) {
  each.breaks(site);
  const Findings findings = examine(site);
  for (const Finding& finding : findings) {
    if (finding.check != each.check || finding.level != each.level ||
        !contains(finding.what, each.what))
      continue;
    for (const std::string& line : finding.fix)
      if (contains(line, each.fix)) return;
  }
  cr_assert(false, "%s: not \"%s\" with \"%s\" in:\n%s", each.check, each.what, each.fix,
            findings_text(findings).c_str());
}

inline void expect_all_good(const Site& site) {
  for (const Finding& finding : examine(site))
    cr_assert_eq(finding.level, Level::ok, "%s: %s", finding.check.c_str(), finding.what.c_str());
}

inline long faults(const Site& site) {
  const Findings findings = examine(site);
  return std::count_if(findings.begin(), findings.end(),
                       [](const Finding& each) { return each.level == Level::fault; });
}

}  // namespace doctor_case
