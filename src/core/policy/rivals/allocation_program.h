// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

namespace swell::policy {

/// One allocation that a job could get: GPUs of one type, and its cost in the objective. Smaller
/// costs are better; a job without an allocation costs 0.
struct Choice {
  int type = 0;
  int gpus = 0;
  double cost = 0;
};

/// Integer program of Sia: at most one choice for each job, within the capacity. Costs are powered
/// utilities less the queueing penalty.
struct AllocationProgram {
  std::vector<int> capacity;              ///< GPUs by type
  std::vector<std::vector<Choice>> jobs;  ///< choices by job
};

/// Solution of the program.
struct Allocation {
  std::vector<int> chosen;  ///< by job: an index into its choices, -1 for none
  double cost = 0;
  bool proven = false;  ///< proven to be within 0.01 % of the optimum
};

/// Minimizes the sum of costs with GLPK: branch and bound over the linear relaxation, whose
/// solution is rounded at every node for an upper bound. Stops after 2,000 nodes (a count, so that
/// equal programs give equal answers) with the best rounding so far. Choices that cost more than
/// one of the same type with fewer GPUs are left out.
Allocation minimize(const AllocationProgram& program);

/// Rounds the fractional solution `share` (by job and choice): takes the largest shares that fit,
/// then the changes that gain most for each GPU.
Allocation round_down(const AllocationProgram& program,
                      const std::vector<std::vector<double>>& share);

}  // namespace swell::policy
