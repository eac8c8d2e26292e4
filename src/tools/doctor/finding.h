// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace swell::tools::doctor {

/// Severity of a finding. warn: Swell works, but not as well as it could. fault: Swell does not
/// work, or basic demand is not safe.
enum class Level { ok, warn, fault };

/// Finding of one check.
struct Finding {
  Level level = Level::ok;
  std::string check;  ///< a short and stable name, e.g. "expansion-qos"
  std::string what;   ///< one sentence
  /// Steps that fix it, a line each: exact commands and lines of slurm.conf.
  std::vector<std::string> fix;
};
using Findings = std::vector<Finding>;

inline Finding good(std::string check, std::string what) {
  return {Level::ok, std::move(check), std::move(what), {}};
}
inline Finding warning(std::string check, std::string what, std::vector<std::string> fix) {
  return {Level::warn, std::move(check), std::move(what), std::move(fix)};
}
inline Finding fault(std::string check, std::string what, std::vector<std::string> fix) {
  return {Level::fault, std::move(check), std::move(what), std::move(fix)};
}

bool has_fault(const Findings& findings);
/// Returns text for people: a line for each check, under it the fix lines, and a line of totals.
std::string findings_text(const Findings& findings);
/// Returns JSON {"faults": n, "warnings": n, "checks": [...]}, as swell(1) describes.
Json findings_json(const Findings& findings);

}  // namespace swell::tools::doctor
