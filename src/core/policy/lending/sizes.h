// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>

#include "core/policy/view.h"

namespace swell::policy {

/// Whether the job may have `total` GPUs in all.
inline bool may_have(const ElasticJobView& job, int total) {
  return total <= job.max_gpus &&
         (job.sizes.empty() || std::binary_search(job.sizes.begin(), job.sizes.end(), total));
}

/// The next total above `total` that the job may have, or 0 where it has its most.
inline int next_size(const ElasticJobView& job, int total) {
  if (job.sizes.empty()) {
    const int next = total + job.per_worker.gpus;
    return next <= job.max_gpus ? next : 0;
  }
  const auto next = std::upper_bound(job.sizes.begin(), job.sizes.end(), total);
  return next != job.sizes.end() && *next <= job.max_gpus ? *next : 0;
}

}  // namespace swell::policy
