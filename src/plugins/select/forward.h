// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

namespace swell::select {

/// Every other symbol of cons_tres is passed on by a jump through a slot, so that no prototype of
/// Slurm's internal interface is needed: arguments and result are where the caller put and expects
/// them. Names are those of forwarded.txt and of the stock plugin that the build found.

/// Fills the slots from a loaded select_cons_tres.so. What it does not have, Slurm of its version
/// never asks for.
void forward_to(void* library) noexcept;

/// Counts select_p_node_init() and select_p_reconfigure(): after these, a bit may mean another
/// node.
std::uint32_t node_table_changes() noexcept;

}  // namespace swell::select
