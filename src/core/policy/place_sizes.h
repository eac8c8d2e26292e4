// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/gpu_pool.h"

namespace swell::policy {

/// A job to place, with the number of GPUs that it shall have.
struct Sized {
  int type = 0;
  int gpus = 0;
  int nodes = 1;           ///< on that many, equally many each
  planner::Clumps held;    ///< what it has now, not in the pool
  bool keeps = false;      ///< `held` is what it shall have: stays if it can
};

/// Finds GPUs for every job, by Sia's rules (section 3.3), which are those of ElasticFlow's buddy allocation
/// too: a share of one node comes from one node; several nodes are whole ones; jobs that keep their size
/// stay where they are unless they must make room, the smallest first. Where sizes within a node are
/// powers of two, and nodes have a power of two of GPUs, everybody finds a place.
/// @return by job its GPUs; none where there was no place.
std::vector<planner::Clumps> place_sizes(const std::vector<Sized>& jobs, GpuPool pool);

}  // namespace swell::policy
