// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "sim/outcome.h"
#include "sim/workload.h"

namespace swell::sim {

/// Compares the jobs of one account under a policy with the same jobs under fifo. Times are in
/// seconds and are means over jobs; 0 where the account has no such job.
struct AccountRow {
  std::string account;  ///< empty: jobs whose trace names none
  int jobs = 0;
  int elastic = 0;
  double basic_gpu_s = 0;  ///< GPU-time under fifo
  double lent_gpu_s = 0;   ///< GPU-time that the policy lends
  /// Time from submission to end of elastic jobs.
  double elastic_jct_without_s = 0, elastic_jct_with_s = 0;
  /// Time that jobs which are not elastic wait for GPUs.
  double rigid_wait_without_s = 0, rigid_wait_with_s = 0;
  double most_rigid_delay_s = 0;  ///< the longest by which one ends later than under fifo
};

/// Compares two outcomes of `workload`, one under a policy and one under fifo: a row for each
/// account, most GPU-time first, and behind them the row of all jobs.
std::vector<AccountRow> account_rows(const Workload& workload, const Outcome& with,
                                     const Outcome& fifo);

}  // namespace swell::sim
