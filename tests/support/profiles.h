// SPDX-License-Identifier: GPL-2.0-or-later
// Profiles of a job with known coefficients, with noise.
#pragma once

#include <random>

#include "core/perf/observe.h"
#include "core/perf/peak_memory.h"
#include "support/plans.h"

namespace support {

using swell::perf::observe;

/// Replaces every time by the mean of `iterations` measurements, each with a noise of N(0, sigma),
/// as the profiler would report it. Bytes have no noise, since they are counted.
inline void add_noise(swell::perf::Profile& profile, double sigma, unsigned seed,
                      int iterations = 5) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, sigma);
  for (auto& seen : profile.groups)
    for (double* time :
         {&seen.fwd_s, &seen.fwd_commu_s, &seen.bwd_s, &seen.optim_s, &seen.commu_extra_s}) {
      double sum = 0;
      for (int i = 0; i < iterations; ++i) sum += *time * (1 + normal(random));
      *time = sum / iterations;
    }
}

}  // namespace support
