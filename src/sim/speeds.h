// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/workload.h"

namespace swell::sim {

/// Speed of a job on a number of GPUs by the judge, where 1 is its basic plan. The GPUs are the
/// cluster's first ones; the plan is the one that a job runs that is lent GPUs without a plan.
struct Speed {
  std::uint32_t job = 0;
  int gpus = 0;
  double speedup = 1;
};

/// The speeds of every job on its basic demand and, where it is elastic, on each larger number of
/// GPUs up to `max_factor` times it (0: up to all). Numbers that bring no more than a smaller one
/// are left out. For real programs that take as long as the simulated ones.
std::vector<Speed> speeds_of(const Workload& workload, const cluster::Cluster& cluster,
                             std::uint64_t seed, double max_factor);

/// A line "job,gpus,speedup" each, under a heading.
std::string speeds_csv(const std::vector<Speed>& speeds);

}  // namespace swell::sim
