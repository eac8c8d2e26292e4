// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

namespace swell::sched {

/// Loads a stock scheduler plugin ("sched/backfill") and starts it. It does all scheduling of basic
/// demand, exactly as without Swell.
/// @return null, or why it could not be loaded (valid until the next call).
const char* load_base(const char* type) noexcept;

/// Ends it, as slurmctld would.
void unload_base() noexcept;

/// Passes `scontrol reconfigure` on.
int reconfigure_base() noexcept;

}  // namespace swell::sched
