// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

namespace swell::slurm {

/// Expands a host list expression ("node[1-3,7]") of slurmctld, in its order. Null or empty gives
/// no names.
std::vector<std::string> expand_hosts(const char* expression);

}  // namespace swell::slurm
