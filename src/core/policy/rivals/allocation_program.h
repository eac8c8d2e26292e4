// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

namespace swell::policy {

/// One allocation that a job could get: GPUs of one type, and what the objective gains by it.
/// Smaller is better; a job without any counts 0.
struct Choice {
  int type = 0;
  int gpus = 0;
  double cost = 0;
};

/// At most one choice a job, within the GPUs there are: Sia's integer program, for which
/// the costs are its powered utilities less the queueing penalty.
struct AllocationProgram {
  std::vector<int> capacity;              ///< GPUs by type
  std::vector<std::vector<Choice>> jobs;  ///< choices by job
};

/// How the program was solved.
struct Allocation {
  std::vector<int> chosen;  ///< by job: an index into its choices, -1 for none
  double cost = 0;
  bool proven = false;  ///< within 0.01 % of the best there is
};

/// Minimizes the sum of costs with GLPK: branch and bound over the linear relaxation, whose
/// solution is rounded at every node for a bound from above. Stops after 2,000 nodes, a number and
/// not a time, so that equal programs give equal answers; then the best rounding is the answer.
/// Choices that cost more than one of the same type with fewer GPUs are left out.
Allocation minimize(const AllocationProgram& program);

/// The fractional solution `share` (by job and choice) made whole: the largest shares that fit,
/// then whatever gains most for each GPU.
Allocation round_down(const AllocationProgram& program,
                      const std::vector<std::vector<double>>& share);

}  // namespace swell::policy
