// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace swell {

/// Indexes, in the order of NVIDIA's driver, of GPUs that refuse a second program, by compute mode.
struct OneProgramGpus {
  std::vector<int> exclusive, prohibited;
  bool empty() const noexcept { return exclusive.empty() && prohibited.empty(); }
  friend bool operator==(const OneProgramGpus&, const OneProgramGpus&) = default;
};

/// Returns the GPUs among `own` that refuse a second program. `own`: device numbers as in
/// SLURM_STEP_GPUS; if it is empty or names no GPU that this process may open, considers all that
/// it may open. Leaves out GPUs in EXCLUSIVE_PROCESS if NVIDIA's MPS runs on this node
/// (CUDA_MPS_PIPE_DIRECTORY): they take several programs then. Returns none without the driver's
/// management library. May take seconds for each GPU if no persistence daemon runs.
OneProgramGpus one_program_gpus(std::string_view own = {});

/// Returns the result of one_program_gpus(), or no GPUs if it takes longer than `limit_s`.
OneProgramGpus one_program_gpus_within(double limit_s, const std::string& own);

/// Returns a text for people: "GPUs 0,1 are in compute mode EXCLUSIVE_PROCESS, which refuses the
/// second program of a live switch"; empty for no GPUs.
std::string one_program_text(const OneProgramGpus& gpus);

}  // namespace swell
