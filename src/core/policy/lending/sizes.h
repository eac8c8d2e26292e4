// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>

#include "core/policy/view.h"

namespace swell::policy {

/// Default limit of a job that is not planned for, as a factor of its basic demand.
inline constexpr double kUnplannedFactor = 4;

/// Returns whether `total` is an allowed number of GPUs of the job.
inline bool may_have(const ElasticJobView& job, int total) {
  return total <= job.max_gpus &&
         (job.sizes.empty() || std::binary_search(job.sizes.begin(), job.sizes.end(), total));
}

/// Returns the smallest allowed number of GPUs above `total`; 0 if there is none.
inline int next_size(const ElasticJobView& job, int total) {
  if (job.sizes.empty()) {
    const int next = total + job.per_worker.gpus;
    return next <= job.max_gpus ? next : 0;
  }
  const auto next = std::upper_bound(job.sizes.begin(), job.sizes.end(), total);
  return next != job.sizes.end() && *next <= job.max_gpus ? *next : 0;
}

}  // namespace swell::policy
