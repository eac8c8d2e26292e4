// SPDX-License-Identifier: GPL-2.0-or-later
// Compares the performance model with the judge: random plans of random jobs, predicted from one
// profile of another plan with times that are off by 2 %, and from data sheets only. Last line:
// JSON, errors as fractions.
#include <cstdio>

#include "support/judged.h"

namespace {

using support::PredictedFrom;

support::Judged shown(const char* name, double noise, PredictedFrom from) {
  const auto judged = support::judge_predictions(1000, noise, from);
  std::printf(
      "%s: %4d plans, noise %.0f %%: mean %.2f %%, p90 %.2f %%, max %.2f %%, bias %+.2f %%\n", name,
      judged.plans, 100 * noise, 100 * judged.mean, 100 * judged.p90, 100 * judged.worst,
      100 * judged.bias);
  return judged;
}

}  // namespace

int main() {
  support::Judged linear, judged;
  for (const double noise : {0.0, 0.02, 0.05}) {
    const auto one = shown("A.2", noise, PredictedFrom::profile_a2);
    if (noise == 0.02) linear = one;
  }
  for (const double noise : {0.0, 0.02, 0.05}) {
    const auto one = shown("second model", noise, PredictedFrom::profile);
    if (noise == 0.02) judged = one;
  }
  shown("A.2 by data sheets", 0, PredictedFrom::sheets_a2);
  const auto sheets = shown("second model by data sheets", 0, PredictedFrom::sheets);
  std::printf(
      "{\"plans\":%d,\"mean_abs_error\":%.4f,\"p90_abs_error\":%.4f,\"a2_mean_abs_error\":%.4f,\"sheets_mean_abs_error\":%.4f}\n",
      judged.plans, judged.mean, judged.p90, linear.mean, sheets.mean);
  return 0;
}
