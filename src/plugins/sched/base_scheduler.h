// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

namespace swell::sched {

/// Loads a stock scheduler plugin ("sched/backfill") and starts it. It does all scheduling of basic
/// demand, exactly as without Swell. Returns why it could not be loaded; empty: it was loaded.
std::string load_base(const std::string& type);

/// Ends the base scheduler, as slurmctld would.
void unload_base() noexcept;

/// Passes on `scontrol reconfigure`.
int reconfigure_base() noexcept;

}  // namespace swell::sched
