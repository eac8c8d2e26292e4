// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/finding.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/count_of.h"
#include "tools/output.h"

namespace swell::tools::doctor {

namespace {

const char* word(Level level) {
  switch (level) {
    case Level::ok: return "ok";
    case Level::warn: return "warn";
    case Level::fault: return "FAULT";
  }
  return "";
}

long count(const Findings& findings, Level level) {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& each) { return each.level == level; });
}

std::string number_of(long count, const char* thing) {
  return count == 0 ? fmt::format("no {}s", thing) : count_of(count, thing);
}

}  // namespace

bool has_fault(const Findings& findings) { return count(findings, Level::fault) > 0; }

std::string findings_text(const Findings& findings) {
  std::string text;
  for (const Finding& each : findings) {
    text += line_of("{:<5}  {}: {}\n", word(each.level), each.check, each.what);
    for (const std::string& line : each.fix) text += line_of("       fix: {}\n", line);
  }
  return text + fmt::format("{}, {}\n", number_of(count(findings, Level::fault), "fault"),
                            number_of(count(findings, Level::warn), "warning"));
}

Json findings_json(const Findings& findings) {
  Json checks = Json::array();
  for (const Finding& each : findings)
    checks.append(Json::object({{"check", each.check},
                                {"result", word(each.level)},
                                {"what", each.what},
                                {"fix", array_of(each.fix)}}));
  return Json::object({{"faults", count(findings, Level::fault)},
                       {"warnings", count(findings, Level::warn)},
                       {"checks", checks}});
}

}  // namespace swell::tools::doctor
