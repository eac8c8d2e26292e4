// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

namespace swell {

/// Returns the indexes, as NVIDIA's driver counts, of GPUs of this node that refuse a second
/// program (compute mode EXCLUSIVE_PROCESS, or PROHIBITED). None where the driver's management
/// library cannot be loaded.
std::vector<int> one_program_gpus();

/// "GPUs 0,1 are in compute mode EXCLUSIVE_PROCESS, which refuses the second program of a live
/// switch"; empty for no GPUs.
std::string one_program_text(const std::vector<int>& gpus);

}  // namespace swell
