// SPDX-License-Identifier: GPL-2.0-or-later
// The performance model against the judge: random plans of random jobs, predicted from one profile
// of another plan whose times are off by 2 %. Last line: JSON, errors as fractions.
#include <cstdio>

#include "support/judged.h"

int main() {
  for (const bool launches : {false, true})
    for (double noise : {0.0, 0.02, 0.05}) {
      const auto judged = support::judge_predictions(1000, noise, launches);
      std::printf(
          "%s: %4d plans, noise %.0f %%: mean %.2f %%, p90 %.2f %%, max %.2f %%, bias %+.2f %%\n",
          launches ? "second model" : "A.2", judged.plans, 100 * noise, 100 * judged.mean,
          100 * judged.p90, 100 * judged.worst, 100 * judged.bias);
    }
  const auto judged = support::judge_predictions(1000, 0.02),
             linear = support::judge_predictions(1000, 0.02, false);
  std::printf(
      "{\"plans\":%d,\"mean_abs_error\":%.4f,\"p90_abs_error\":%.4f,\"a2_mean_abs_error\":%.4f}\n",
      judged.plans, judged.mean, judged.p90, linear.mean);
  return 0;
}
