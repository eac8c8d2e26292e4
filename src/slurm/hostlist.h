// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

namespace swell::slurm {

/// The node names of a host list expression ("node[1-3,7]") as slurmctld writes it, in its order.
/// Null or empty: none.
std::vector<std::string> expand_hosts(const char* expression);

}  // namespace swell::slurm
