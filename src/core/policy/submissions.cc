// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/submissions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace swell::policy {

int counted(const std::vector<Submission>& submissions, const ArrivalFilter& filter, double now_s) {
  long sum = 0;
  for (const Submission& one : submissions)
    if (one.gpus >= filter.gpus && one.submitted_s > now_s - filter.window_s &&
        one.submitted_s <= now_s)
      sum += one.tasks;
  return static_cast<int>(std::min<long>(sum, std::numeric_limits<int>::max()));
}

double chance_to_pay(int counted, const ArrivalFilter& filter, double speedup, double overhead_s) {
  if (!(speedup > 1)) return 0;
  const double rate = counted / filter.window_s;
  return std::exp(-rate * speedup / (speedup - 1) * std::max(overhead_s, 0.0));
}

}  // namespace swell::policy
