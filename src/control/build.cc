// SPDX-License-Identifier: GPL-2.0-or-later
#include "config.h"
#include "control/messages.h"

namespace swell::control {

const char* build() noexcept { return PACKAGE_VERSION; }

}  // namespace swell::control
