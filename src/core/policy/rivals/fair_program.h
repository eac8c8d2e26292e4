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

/// Shares of time, by job and choice, within what there is of each type, by which the job with the
/// least rate has the greatest that it can; of these, with the greatest sum of rates. With `sum`
/// the greatest sum of rates alone. Jobs without a choice that fits have none. GLPK's simplex; all
/// shares are 0 where it finds nothing.
std::vector<std::vector<double>> fair_shares(const FairProgram& program, bool sum);

}  // namespace swell::policy
