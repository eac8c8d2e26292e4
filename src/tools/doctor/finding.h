// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace swell::tools::doctor {

/// ok: as it should be. warn: Swell works, not as well as it could. fault: Swell does not work, or
/// basic demand is not safe.
enum class Level { ok, warn, fault };

/// What one check found.
struct Finding {
  Level level = Level::ok;
  std::string check;  ///< a short name that stays the same, e.g. "expansion-qos"
  std::string what;   ///< one sentence
  /// What to do, a line each; commands and slurm.conf lines exactly.
  std::vector<std::string> mend;
};
using Findings = std::vector<Finding>;

inline Finding good(std::string check, std::string what) {
  return {Level::ok, std::move(check), std::move(what), {}};
}
inline Finding warning(std::string check, std::string what, std::vector<std::string> mend) {
  return {Level::warn, std::move(check), std::move(what), std::move(mend)};
}
inline Finding fault(std::string check, std::string what, std::vector<std::string> mend) {
  return {Level::fault, std::move(check), std::move(what), std::move(mend)};
}

bool has_fault(const Findings& findings);
/// A line a check, under it the mend lines, and a line of totals.
std::string findings_text(const Findings& findings);
/// {"faults": n, "warnings": n, "checks": [...]}, as swell(1) describes.
Json findings_json(const Findings& findings);

}  // namespace swell::tools::doctor
