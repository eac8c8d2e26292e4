// SPDX-License-Identifier: GPL-2.0-or-later
// swell doctor: checks whether the site is configured as Swell needs it, and says how to mend what
// is not.
#include <fmt/format.h>
#include <memory>

#include "tools/commands.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/gather.h"
#include "tools/output.h"

namespace swell::tools {

Action add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Check the site's configuration; say how to mend it");
  command->add_flag("--json", *json, "Print JSON, as swell(1) describes");
  return [json] {
    const doctor::Findings findings = doctor::examine(doctor::gather_site());
    if (*json) write_json(doctor::findings_json(findings));
    else write_text(doctor::findings_text(findings));
    return doctor::has_fault(findings) ? 1 : 0;
  };
}

}  // namespace swell::tools
