// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

namespace swell::select {

/// Forwarding of every other symbol of cons_tres: a jump through a slot, so that no prototype of
/// Slurm's internal interface is needed; arguments and result stay where the caller puts and
/// expects them. The names are those of forwarded.txt and of the stock plugin that the build found.

/// Fills the slots from a loaded select_cons_tres.so. Slurm of its version never calls the symbols
/// that it does not have.
void forward_to(void* library) noexcept;

/// Number of calls of select_p_node_init() and select_p_reconfigure(): after one, a bit may mean
/// another node.
std::uint32_t node_table_changes() noexcept;

}  // namespace swell::select
