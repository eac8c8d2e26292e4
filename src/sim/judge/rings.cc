// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/rings.h"

#include <algorithm>

namespace swell::sim::judge {

namespace {

// The size of a message that reaches half of the speed of a link within a node.
constexpr double kHalfLinkBytes = 1.5e6;
constexpr double kHalfNetworkBytes = 0.5e6;

}  // namespace

double message_s(double bytes, double bytes_per_s, double half_bytes) { return (bytes + half_bytes) / bytes_per_s; }

double group_allreduce_s(const plan::GroupLayout& group, int tp, double bytes, const cluster::Cluster& cluster) {
  if (tp <= 1) return 0;
  const double link = cluster.type(group.type).link_bytes_per_s;
  // The whole ring's traffic is cut into messages that start up once: the steps follow each other.
  double seconds = kHalfLinkBytes / link;
  for (int step = 0; step < 2 * (tp - 1); ++step) seconds += bytes / tp / link;
  return seconds;
}

double stage_allreduce_s(const plan::StageLayout& stage, double bytes, const cluster::Cluster& cluster) {
  const std::size_t dp = stage.groups.size();
  if (dp <= 1) return 0;
  // Groups stand in the ring as they are listed; a step takes as long as its slowest wire.
  double slowest = 0;
  const double part = bytes / stage.tp / static_cast<double>(dp);  // of one rank's gradients
  for (std::size_t j = 0; j < dp; ++j) {
    const plan::GroupLayout& from = stage.groups[j];
    const plan::GroupLayout& to = stage.groups[(j + 1) % dp];
    if (from.node == to.node) {
      const double link = std::min(cluster.type(from.type).link_bytes_per_s, cluster.type(to.type).link_bytes_per_s);
      slowest = std::max(slowest, message_s(part, link, 0));
    } else {
      const double network = cluster.node_bandwidth(from.node, to.node);
      slowest = std::max(slowest, message_s(part * stage.tp, network, 0));
    }
  }
  double seconds = (kHalfNetworkBytes) / 100e9;
  for (std::size_t step = 0; step < 2 * (dp - 1); ++step) seconds += slowest;
  return seconds;
}

}  // namespace swell::sim::judge
