// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace swell {

/// Indexes, as NVIDIA's driver counts, of GPUs that refuse a second program, by compute mode.
struct OneProgramGpus {
  std::vector<int> exclusive, prohibited;
  bool empty() const noexcept { return exclusive.empty() && prohibited.empty(); }
  friend bool operator==(const OneProgramGpus&, const OneProgramGpus&) = default;
};

/// Returns such GPUs among `own`, a list of device numbers as of SLURM_STEP_GPUS, or among all that
/// this process may open where `own` is empty or names none of them. GPUs in EXCLUSIVE_PROCESS take
/// several programs, and are left out, where NVIDIA's MPS runs on this node
/// (CUDA_MPS_PIPE_DIRECTORY). Empty where the driver's management library cannot be loaded. May
/// take seconds for each GPU where no persistence daemon runs.
OneProgramGpus one_program_gpus(std::string_view own = {});

/// Returns what one_program_gpus() finds, or nothing where it takes longer than `limit_s`.
OneProgramGpus one_program_gpus_within(double limit_s, const std::string& own);

/// "GPUs 0,1 are in compute mode EXCLUSIVE_PROCESS, which refuses the second program of a live
/// switch"; empty for no GPUs.
std::string one_program_text(const OneProgramGpus& gpus);

}  // namespace swell
