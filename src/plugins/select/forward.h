// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

namespace swell::select {

/// Forwards every other symbol of cons_tres by a jump through a slot, so that no prototype of
/// Slurm's internal interface is needed; arguments and results stay where caller and callee expect
/// them. The names are those of forwarded.txt, and those of the stock plugin that the build found.

/// Fills the slots from a loaded select_cons_tres.so. Slurm of that library's version never calls
/// symbols that the library does not have.
void forward_to(void* library) noexcept;

/// Returns the number of calls of select_p_node_init() and select_p_reconfigure(); after such a
/// call a bit may stand for another node.
std::uint32_t node_table_changes() noexcept;

}  // namespace swell::select
