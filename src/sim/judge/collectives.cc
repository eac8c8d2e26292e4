// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/collectives.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace swell::sim::judge {

namespace {

// Fitted to vTrain's table of NCCL all-reduces on 2 to 8 A100: 35 us plus 6 us for each rank before
// bytes move, then 66 % of a link between two GPUs, 77 % among more.
constexpr double kStart_s = 35e-6;
constexpr double kRankStart_s = 6e-6;
constexpr double kPairShare = 0.66;
constexpr double kLinkShare = 0.77;
// Share of PCIe bandwidth that NCCL reaches on links up to kPcieLink: fitted to Arena's table for
// A40 and A10.
constexpr double kPcieLink = 70e9;
constexpr double kPcieShare = 0.44;
// Between nodes: the wait for a message in one step of a ring (fitted to how the time of
// ElasticFlow's GPT-2 rises with the ranks), and payload at 80 % of a card's rate.
constexpr double kStep_s = 9e-6;
constexpr double kNetworkShare = 0.8;
constexpr double kSendStart_s = 20e-6;

double link_share(int ranks, double link) {
  return link <= kPcieLink ? kPcieShare : ranks == 2 ? kPairShare : kLinkShare;
}

}  // namespace

double node_allreduce_s(int ranks, double bytes, double link) {
  if (ranks <= 1) return 0;
  const double moved = 2.0 * (ranks - 1) / ranks * bytes;
  return kStart_s + kRankStart_s * ranks + moved / (link * link_share(ranks, link));
}

double group_allreduce_s(const plan::GroupLayout& group, int tp, double bytes,
                         const cluster::Cluster& cluster) {
  return node_allreduce_s(tp, bytes, cluster.type(group.type).link_bytes_per_s);
}

double stage_allreduce_s(const plan::StageLayout& stage, double bytes,
                         const cluster::Cluster& cluster, const Software& software) {
  const int ranks = stage.dp();
  if (ranks <= 1) return 0;
  const auto on_node = [&](const plan::GroupLayout& one) {
    int gpus = 0;
    for (const plan::GroupLayout& group : stage.groups)
      gpus += plan::together(group, one) ? stage.tp : 0;
    return gpus;
  };
  // Time of the slowest link between neighbours in the ring; each carries the traffic of a whole
  // group.
  double slowest = 0, link = 1e30;
  bool several_nodes = false;
  std::pair<int, int> before_from{-1, 0}, before_to{-1, 0};
  for (std::size_t j = 0; j < stage.groups.size(); ++j) {
    const plan::GroupLayout& from = stage.groups[j];
    const plan::GroupLayout& to = stage.groups[(j + 1) % stage.groups.size()];
    const double own = cluster.type(from.type).link_bytes_per_s;
    link = std::min(link, own);
    if (plan::together(from, to)) {
      const double wire = stage.tp * std::min(own, cluster.type(to.type).link_bytes_per_s);
      slowest = std::max(slowest, 1 / (wire * link_share(ranks, wire / stage.tp)));
      continue;
    }
    several_nodes = true;
    const std::pair<int, int> at{from.node, from.part}, to_at{to.node, to.part};
    if (at == before_from && to_at == before_to) continue;
    before_from = at, before_to = to_at;
    slowest =
        std::max(slowest, 1 / (kNetworkShare * cluster.network_bandwidth(from.node, on_node(from),
                                                                         to.node, on_node(to))));
  }
  const double pieces = std::max(1.0, std::ceil(bytes / stage.tp / software.bucket_bytes));
  if (!several_nodes) return pieces * node_allreduce_s(ranks, bytes / stage.tp / pieces, link);
  const double moved = 2.0 * (ranks - 1) / ranks * bytes;
  return pieces * (kStart_s + 2 * (ranks - 1) * kStep_s) + moved * slowest;
}

double send_s(const plan::GroupLayout& from, const plan::GroupLayout& to, double bytes,
              const cluster::Cluster& cluster) {
  if (plan::together(from, to)) {
    const double link =
        std::min(cluster.type(from.type).link_bytes_per_s, cluster.type(to.type).link_bytes_per_s);
    return kSendStart_s + bytes / (link * link_share(2, link));
  }
  const double network = cluster.network_bandwidth(from.node, std::popcount(from.gpus), to.node,
                                                   std::popcount(to.gpus));
  return kSendStart_s + bytes / (kNetworkShare * network);
}

double gather_s(int nodes, int per_node, double bytes, double link, double network) {
  const int ranks = nodes * per_node;
  if (ranks <= 1) return 0;
  const double moved = bytes * (ranks - 1) / ranks;
  const double inside = moved / (link * link_share(per_node, link));
  if (nodes == 1) return kStart_s + kRankStart_s * ranks + inside;
  return kStart_s + (ranks - 1) * kStep_s + std::max(inside, moved / (kNetworkShare * network));
}

}  // namespace swell::sim::judge
