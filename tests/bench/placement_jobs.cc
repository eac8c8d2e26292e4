// SPDX-License-Identifier: GPL-2.0-or-later
#include "bench/placement_jobs.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <sstream>

namespace swell::bench {

std::vector<Job> stream(unsigned seed, int count, int nodes, double load, double seconds) {
  std::mt19937 random(seed);
  std::discrete_distribution<int> size({0, 22, 22, 13, 17, 7, 7, 4, 8});
  std::uniform_real_distribution<double> length(0.4, 1.6);
  std::vector<Job> jobs(static_cast<std::size_t>(count));
  double work = 0;
  for (Job& job : jobs) {
    job.nodes = size(random);
    job.gpus = std::uniform_int_distribution<int>(0, 3)(random) == 0 ? 4 : 8;
    job.lasts_s = length(random);
    work += job.nodes * (job.gpus / 8.0) * job.lasts_s;
  }
  // The mean duration follows from the duration of the stream at this load.
  const double scale = seconds * load * nodes / work;
  std::exponential_distribution<double> pause(count / seconds);
  double now = 0;
  for (Job& job : jobs) {
    job.lasts_s *= scale;
    job.arrives_s = now;
    now += pause(random);
  }
  return jobs;
}

Layout layout_from(const char* text) {
  Layout layout;
  std::istringstream in(text);
  for (std::string rack; std::getline(in, rack, ',');) layout.push_back(rack);
  return layout;
}

int largest_rack(const Layout& layout) {
  std::map<std::string, int> size;
  int largest = 0;
  for (const std::string& rack : layout) largest = std::max(largest, ++size[rack]);
  return largest;
}

double mean_switches(const std::vector<Job>& jobs, const Layout& layout) {
  double switches = 0;
  int multi = 0;
  for (const Job& job : jobs) {
    if (job.nodes < 2) continue;
    std::set<std::string> under;
    for (int node : job.on) under.insert(layout.at(static_cast<std::size_t>(node)));
    switches += static_cast<double>(under.size());
    ++multi;
  }
  return multi > 0 ? switches / multi : 0;
}

double min_switches(const std::vector<Job>& jobs, int rack_size) {
  double switches = 0;
  int multi = 0;
  for (const Job& job : jobs) {
    if (job.nodes < 2) continue;
    switches += (job.nodes + rack_size - 1) / rack_size;
    ++multi;
  }
  return multi > 0 ? switches / multi : 0;
}

}  // namespace swell::bench
