// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>

namespace swell::controller {

/// How long the controller rests after a round whose own work took so long, however many events
/// come meanwhile: rounds take a small share of a core, as long as PollInterval allows.
std::chrono::steady_clock::duration rest_after(double own_work_s, double poll_interval_s);

}  // namespace swell::controller
