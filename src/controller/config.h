// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "control/swell_conf.h"
#include "core/result.h"

namespace swell::controller {

using Config = control::SwellConf;

/// What only the controller can say of a swell.conf: whether it has that policy.
Result<void> check_policy(const Config& config);

/// Reads swell.conf as the controller needs it. The error names the file, the key, the value and
/// what is allowed.
Result<Config> load_config(const std::string& path);

}  // namespace swell::controller
