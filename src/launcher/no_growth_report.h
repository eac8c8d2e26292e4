// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "control/messages.h"
#include "launcher/controller_link.h"

namespace swell::launcher {

/// Report to the controller of a swellrun that only runs srun.
struct NoGrowthReport {
  ControllerAddress controller;
  control::Hello hello;  ///< with the reason as its no_growth
};

/// Tells the controller why the job is lent nothing. Runs as a process of its own until the
/// caller's process ends, even if that has become srun. REQUIRES: this process has one thread.
void report_no_growth(const NoGrowthReport& report);

}  // namespace swell::launcher
