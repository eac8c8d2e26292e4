// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace swell::bench {

/// One job of tests/bench/placement. Times are on the stream's own clock.
struct Job {
  double arrives_s = 0, lasts_s = 0;
  int nodes = 1, gpus = 8;  ///< gpus: on each node
  std::uint32_t id = 0;
  double submitted_s = 0, started_s = -1;
  bool ended = false;
  std::vector<int> on;  ///< node indexes, from 0
};

/// Returns jobs of 1 to 8 nodes, small ones more often, as in training queues; one in four takes
/// half of each node. Arrivals are such that the average demand is `load` of all nodes.
std::vector<Job> stream(unsigned seed, int count, int nodes, double load, double seconds);

using Layout = std::vector<std::string>;  ///< the rack of each node

/// Reads a layout such as "a,a,b,b".
Layout layout_from(const char* text);
int largest_rack(const Layout& layout);
/// Returns the mean number of racks over the jobs of several nodes.
double mean_switches(const std::vector<Job>& jobs, const Layout& layout);
/// Returns the minimum over all placements, as if the cluster were empty for each job.
double min_switches(const std::vector<Job>& jobs, int rack_size);

}  // namespace swell::bench
