// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "control/messages.h"
#include "launcher/controller_link.h"

namespace swell::launcher {

/// Report of a job's swellrun to the controller where it runs as srun.
struct NoGrowthReport {
  ControllerAddress controller;
  control::Hello hello;  ///< with the reason as its no_growth
};

/// Tells the controller, from a process of its own that ends when the caller's process does, also
/// if that has become srun, why the job is lent nothing. REQUIRES: this process has one thread.
void report_no_growth(const NoGrowthReport& report);

}  // namespace swell::launcher
