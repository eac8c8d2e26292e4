// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "control/swell_conf.h"
#include "core/result.h"

namespace swell::controller {

using Config = control::SwellConf;

/// Checks what only the controller knows: whether it has the policy, and whether that lends for the
/// objective.
Result<void> check_policy(const Config& config);

/// Reads swell.conf as the controller needs it. The error names the file, the key, the value and
/// what is allowed.
Result<Config> load_config(const std::string& path);

}  // namespace swell::controller
