// SPDX-License-Identifier: GPL-2.0-or-later
// swell doctor: checks whether the site is configured as Swell needs it, and says how to fix the
// rest.
#include <fmt/format.h>
#include <map>
#include <memory>
#include <string>

#include "control/messages.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/gather.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

/// Returns the problems that the controller reports, by subject; none if it does not answer.
std::map<std::string, std::string> troubles_of_controller() {
  std::map<std::string, std::string> troubles;
  control::Ask ask;
  ask.what = "metrics";
  const Result<control::Answer> answer = ask_controller(ask);
  if (!answer || !is_object(answer->details)) return troubles;
  for (const auto& [of, sentence] : members(answer->details.at("troubles")))
    if (const char* text = json_string_value(sentence.get())) troubles[of] = text;
  return troubles;
}

}  // namespace

Action add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Check the site's configuration; say how to fix it");
  command->add_flag("--json", *json, "Print JSON, as swell(1) describes");
  return [json] {
    doctor::Site site = doctor::gather_site();
    if (site.control_port && site.munge) site.troubles = troubles_of_controller();
    const doctor::Findings findings = doctor::examine(site);
    if (*json) write_json(doctor::findings_json(findings));
    else write_text(doctor::findings_text(findings));
    return doctor::has_fault(findings) ? 1 : 0;
  };
}

}  // namespace swell::tools
