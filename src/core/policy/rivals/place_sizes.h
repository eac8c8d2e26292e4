// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/rivals/gpu_pool.h"

namespace swell::policy {

/// A number of GPUs of one type, on `nodes` nodes, equally many each.
struct Size {
  int type = 0;
  int gpus = 0;
  int nodes = 1;
};

/// A job to place, with what it shall have.
struct Sized {
  std::vector<Size> sizes;  ///< the first that there is a place for; none: nothing
  planner::Clumps held;     ///< what it has now, not in the pool
  bool keeps = false;       ///< `held` is what it shall have: stays if it can
};

struct Placed {
  planner::Clumps gpus;
  int size = -1;
};

/// Finds GPUs for every job, by Sia's placement rules, which are those of ElasticFlow's buddy
/// allocation too: a share of one node comes from one node; several nodes are whole ones; jobs that
/// keep their size stay where they are unless they must make room, the smallest first. Where sizes
/// within a node are powers of two, and nodes have a power of two of GPUs, everybody finds a place,
/// unless jobs that cannot be moved are in the way: then who finds none tries its next size.
/// @return by job its GPUs (none where there was no place) and which of its sizes that is.
std::vector<Placed> place_sizes(const std::vector<Sized>& jobs, GpuPool pool);

}  // namespace swell::policy
