// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

namespace swell::policy {

/// GPUs of one type on which a job can run, and how much each share of time there counts for it.
struct FairChoice {
  int type = 0;
  int gpus = 0;
  double rate = 0;  ///< above 0
};

/// Linear program of Gavel: each job has shares of time on its choices, one at a time.
struct FairProgram {
  std::vector<int> capacity;                  ///< GPUs by type
  std::vector<std::vector<FairChoice>> jobs;  ///< choices by job
};

/// Returns shares of time, by job and choice, that the GPUs of each type allow: those that maximize
/// the minimum rate of all jobs and then the sum of rates; with `sum`, only the sum. A job without
/// a choice that fits has shares of 0. Solved by GLPK's simplex; all shares are 0 if it finds no
/// solution.
std::vector<std::vector<double>> fair_shares(const FairProgram& program, bool sum);

}  // namespace swell::policy
