// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bit>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"
#include "core/slurm_text/lists.h"
#include "slurm/records.h"

namespace swell::controller {

/// Returns the `wanted` GPUs of lowest index; all if there are fewer.
inline plan::GpuMask lowest(plan::GpuMask gpus, int wanted) {
  plan::GpuMask taken = 0;
  for (; wanted > 0 && gpus != 0; --wanted, gpus &= gpus - 1) taken |= gpus & (~gpus + 1);
  return taken;
}

/// Returns the GPUs that the list of indices names; none if it does not name `count` of them.
inline plan::GpuMask mask_of(const slurm::GpuRequest& gpus) {
  plan::GpuMask mask = 0;
  for (const int index : slurm_text::expand_indices(gpus.indices, cluster::kMaxGpusPerNode))
    if (index < cluster::kMaxGpusPerNode) mask |= plan::GpuMask{1} << index;
  return std::popcount(mask) == gpus.count ? mask : 0;
}

}  // namespace swell::controller
