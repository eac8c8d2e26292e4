// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as swell.conf: an error of one line, or a configuration within its limits that comments,
// blanks and the case of keys do not change.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "control/swell_conf.h"

namespace {

using swell::control::SwellConf;

void check(bool holds) {
  if (!holds) std::abort();
}

/// Every line with blanks and a comment, and with its key in capitals.
std::string dressed(std::string_view text) {
  std::string result = "# a comment\n\n";
  bool in_key = true, in_comment = false;
  for (const char c : text) {
    if (c == '\n') {
      result += "  # more";
      in_key = true;
      in_comment = false;
    }
    if (c == '#') in_comment = true;
    if (c == '=') in_key = false;
    result += in_key && !in_comment && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = SwellConf::parse(text);
  const auto again = SwellConf::parse(dressed(text));
  check(config.ok() == again.ok());
  if (!config) {
    check(!config.error().message().empty());
    return 0;
  }
  check(config->control_port >= 1 && config->control_port <= 65535);
  check(config->poll_interval_s >= 0.1 && config->growth_interval_s >= 0 &&
        config->grant_expiry_s >= 1 && config->agent_timeout_s >= 1 && config->aggressiveness >= 0);
  check(config->base_scheduler.starts_with("sched/") && config->base_scheduler != "sched/swell");
  check(config->expansion_qos == again->expansion_qos &&
        config->expansion_partition == again->expansion_partition &&
        config->base_scheduler == again->base_scheduler && config->event_log == again->event_log &&
        config->control_port == again->control_port &&
        config->control_address == again->control_address &&
        config->growth_interval_s == again->growth_interval_s && config->policy == again->policy);
  return 0;
}
