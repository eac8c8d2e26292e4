// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace swell::bench {

/// One job of tests/bench/placement. Times are of the stream's own clock.
struct Job {
  double arrives_s = 0, lasts_s = 0;
  int nodes = 1, gpus = 8;  ///< gpus: on each node
  std::uint32_t id = 0;
  double submitted_s = 0, started_s = -1;
  bool ended = false;
  std::vector<int> on;  ///< nodes, from 0
};

/// Jobs of 1 to 8 nodes, small ones more often, as training queues have them; one in four takes
/// half of each node. They arrive so that `load` of all nodes is asked for on average.
std::vector<Job> stream(unsigned seed, int count, int nodes, double load, double seconds);

using Layout = std::vector<std::string>;  ///< the rack of each node

/// From "a,a,b,b".
Layout layout_from(const char* text);
int largest_rack(const Layout& layout);
/// Over the jobs of several nodes, how many racks they stood in.
double mean_switches(const std::vector<Job>& jobs, const Layout& layout);
/// Returns the lower bound of every placement, as if the cluster were empty for each job.
double min_switches(const std::vector<Job>& jobs, int rack_size);

}  // namespace swell::bench
