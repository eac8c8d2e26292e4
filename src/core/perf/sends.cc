// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/sends.h"

#include <algorithm>

namespace swell::perf {

namespace {

/// Returns the bandwidth of one of `cp` ranks between a group of `gpus_a` GPUs and one of `gpus_b`.
double bandwidth(const plan::GroupLayout& a, int gpus_a, const plan::GroupLayout& b, int gpus_b,
                 const cluster::Cluster& cluster, int cp) noexcept {
  if (!plan::together(a, b)) return cluster.network_bandwidth(a.node, gpus_a, b.node, gpus_b) / cp;
  return std::min(cluster.type(a.type).link_bytes_per_s, cluster.type(b.type).link_bytes_per_s);
}

}  // namespace

double send_s(const plan::StageLayout& from, const plan::StageLayout& to, double activ_bytes,
              const cluster::Cluster& cluster, int cp) noexcept {
  double slowest = 0;
  std::size_t j = 0;
  int begin = 0, to_begin = 0;  // first sample of the group of `from`, and of group j of `to`
  for (const plan::GroupLayout& group : from.groups) {
    const int end = begin + group.local_batch;
    while (j < to.groups.size()) {
      const plan::GroupLayout& other = to.groups[j];
      const int to_end = to_begin + other.local_batch;
      const int shared = std::min(end, to_end) - std::max(begin, to_begin);
      if (shared > 0)
        slowest = std::max(
            slowest, shared * activ_bytes / bandwidth(group, from.tp, other, to.tp, cluster, cp));
      if (to_end > end) break;  // group j also has samples of the next group of `from`
      to_begin = to_end;
      ++j;
    }
    begin = end;
  }
  return slowest;
}

}  // namespace swell::perf
