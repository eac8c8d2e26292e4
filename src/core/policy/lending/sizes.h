// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>

#include "core/policy/view.h"

namespace swell::policy {

/// Limit of a job whose user gave none and for which no plan is made, as a factor of what it asks
/// for.
inline constexpr double kUnplannedFactor = 4;

/// Whether `total` is an allowed number of GPUs of the job.
inline bool may_have(const ElasticJobView& job, int total) {
  return total <= job.max_gpus &&
         (job.sizes.empty() || std::binary_search(job.sizes.begin(), job.sizes.end(), total));
}

/// The smallest allowed number of GPUs above `total`; 0 where there is none.
inline int next_size(const ElasticJobView& job, int total) {
  if (job.sizes.empty()) {
    const int next = total + job.per_worker.gpus;
    return next <= job.max_gpus ? next : 0;
  }
  const auto next = std::upper_bound(job.sizes.begin(), job.sizes.end(), total);
  return next != job.sizes.end() && *next <= job.max_gpus ? *next : 0;
}

}  // namespace swell::policy
