// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/rivals/gpu_pool.h"

namespace swell::policy {

/// A number of GPUs of one type, equally many on each of `nodes` nodes.
struct Size {
  int type = 0;
  int gpus = 0;
  int nodes = 1;
};

/// A job to place, with the sizes that it may get.
struct Sized {
  std::vector<Size> sizes;  ///< tried in order; empty: the job gets nothing
  planner::Islands held;    ///< GPUs that it has now, not in the pool
  bool keeps = false;       ///< the first size is what it holds: stays there if possible
};

struct Placed {
  planner::Islands gpus;
  int size = -1;  ///< index into Sized::sizes; -1: no place
};

/// Finds GPUs for every job by Sia's placement rules, which are also those of ElasticFlow's buddy
/// allocation: a share of one node comes from one node; several nodes are whole ones; jobs that
/// keep their size stay where they are unless they must make room, the smallest first. If sizes
/// within a node and the nodes' GPUs are powers of two, every job finds a place, unless jobs that
/// cannot be moved are in the way; a job that finds none tries its next size. Returns for each job
/// its GPUs (none if there was no place) and the index of its size.
std::vector<Placed> place_sizes(const std::vector<Sized>& jobs, GpuPool pool);

}  // namespace swell::policy
