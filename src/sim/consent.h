// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/json.h"
#include "sim/metrics.h"
#include "sim/workload.h"

namespace swell::sim {

/// A consenting job's time from submission to end, and that of the same job in the same workload
/// where no job consents.
struct ConsentPair {
  std::size_t seed = 0;  ///< counted from 0
  std::uint32_t job = 0;
  int type = 0;
  int gpus = 0;  ///< GPUs that it wants
  double with_s = 0, without_s = 0;
  double ratio() const noexcept { return with_s / without_s; }
};

/// The cost of consent to fewer GPUs for the jobs that give it, under one policy.
struct ConsentCost {
  PairedRatios all;               ///< completion times of all jobs, with consent over without
  std::vector<ConsentPair> jobs;  ///< consenting ones, by seed and number
  /// Ratios of consenting jobs; the third is the mean of the worst twentieth.
  double median = 1, p95 = 1, worst_twentieth = 1, worst = 1;
};

/// Compares outcomes of the same workloads by seed. A job counts as consenting where it does so in
/// `with`.
ConsentCost consent_cost(const std::vector<Outcome>& with, const std::vector<Outcome>& without);

Json to_json(const ConsentCost& cost, const std::vector<JobType>& types);

}  // namespace swell::sim
