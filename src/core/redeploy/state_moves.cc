// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/redeploy/state_moves.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <vector>

#include "core/plan/chunks.h"

namespace swell::redeploy {

namespace {

using cluster::GpuRef;

/// Units [first, end) of the model; of each, the part from `low` to `high` of 1 along the TP
/// split.
struct Piece {
  int first = 0, end = 0;
  double low = 0, high = 0;
};

std::optional<Piece> common(const Piece& a, const Piece& b) {
  const Piece both{std::max(a.first, b.first), std::min(a.end, b.end), std::max(a.low, b.low),
                   std::min(a.high, b.high)};
  constexpr double kRounding = 1e-9;  // smaller overlaps of shards are rounding errors
  if (both.first >= both.end || both.high - both.low < kRounding) return std::nullopt;
  return both;
}

struct Stage {
  std::vector<Piece> chunks;  ///< those with units, whole: low 0, high 1
  const plan::StageLayout* layout;
  Piece shard(std::size_t chunk, int rank) const {
    const double tp = layout->tp;
    return {chunks[chunk].first, chunks[chunk].end, rank / tp, (rank + 1) / tp};
  }
  std::vector<Piece> shards(int rank) const {
    std::vector<Piece> all;
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) all.push_back(shard(chunk, rank));
    return all;
  }
};

std::vector<Stage> stages_of(const plan::Layout& layout, const models::Chain& chain) {
  const std::vector<plan::UnitRange> ranges = plan::unit_ranges(layout, chain);
  const std::size_t chunks = static_cast<std::size_t>(layout.chunks());
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < layout.stages.size(); ++i) {
    Stage& stage = stages.emplace_back(Stage{{}, &layout.stages[i]});
    for (std::size_t chunk = 0; chunk < chunks; ++chunk)
      if (const plan::UnitRange& units = ranges[i * chunks + chunk]; units.count() > 0)
        stage.chunks.push_back({units.first, units.end, 0, 1});
  }
  return stages;
}

/// The units of both plans. MTP heads are known where a plan lists chunks.
models::Chain chain_of(const plan::Layout& from, const plan::Layout& to) {
  models::Model model;
  for (const plan::StageLayout& stage : from.stages) model.layers += stage.layers;
  model.mtp_heads = std::max(plan::mtp_heads_of(from), plan::mtp_heads_of(to));
  return models::Chain(model);
}

/// The GPU at position `rank` of its TP group.
GpuRef member(const plan::GroupLayout& group, int rank) {
  plan::GpuMask left = group.gpus;
  for (; rank > 0; --rank) left &= left - 1;
  return {group.node, std::countr_zero(left)};
}

class Comparison {
 public:
  Comparison(const perf::Coefficients& coefficients, const plan::Layout& from,
             const plan::Layout& to, const cluster::Cluster& cluster)
      : coefficients_(coefficients),
        chain_(chain_of(from, to)),
        from_(stages_of(from, chain_)),
        to_(stages_of(to, chain_)),
        cluster_(cluster) {
    for (const Stage& stage : from_)
      for (const plan::GroupLayout& group : stage.layout->groups)
        for (int rank = 0; rank < stage.layout->tp; ++rank)
          had_[member(group, rank)] = stage.shards(rank);
  }

  StateMoves run() {
    moves_.whole_bytes = bytes({0, chain_.units(), 0, 1});
    for (const auto& [gpu, pieces] : had_)
      moves_.max_had_bytes = std::max(moves_.max_had_bytes, bytes(pieces));
    for (const Stage& stage : to_)
      for (const plan::GroupLayout& group : stage.layout->groups)
        for (int rank = 0; rank < stage.layout->tp; ++rank)
          receive(member(group, rank), stage.shards(rank));
    for (const auto& [gpu, sent] : sent_) add_time(gpu, sent);
    for (const auto& [gpu, got] : received_) add_time(gpu, got);
    for (const auto& [node, busy_s] : node_in_) moves_.link_s = std::max(moves_.link_s, busy_s);
    for (const auto& [node, busy_s] : node_out_) moves_.link_s = std::max(moves_.link_s, busy_s);
    return moves_;
  }

 private:
  double bytes(const Piece& piece) const {
    const models::Load load = chain_.load(piece.first, piece.end);
    double sum = (load.layers + load.modules) * coefficients_.param_optim_bytes;
    if (load.has_embedding()) sum += coefficients_.first.param_optim_bytes;
    if (load.has_output()) sum += coefficients_.last.param_optim_bytes;
    return sum * (piece.high - piece.low);
  }
  double bytes(const std::vector<Piece>& pieces) const {
    double sum = 0;
    for (const Piece& piece : pieces) sum += bytes(piece);
    return sum;
  }

  void receive(GpuRef gpu, const std::vector<Piece>& needed) {
    moves_.max_needed_bytes = std::max(moves_.max_needed_bytes, bytes(needed));
    const auto found = had_.find(gpu);
    const std::vector<Piece>& mine = found != had_.end() ? found->second : nothing_;
    double local = 0;
    for (const Piece& piece : needed) {
      for (const Piece& own : mine)
        if (const auto kept = common(own, piece)) local += bytes(*kept);
      for (const Stage& stage : from_)
        for (std::size_t chunk = 0; chunk < stage.chunks.size(); ++chunk)
          if (common(stage.chunks[chunk], piece)) receive(gpu, piece, stage, chunk, mine);
    }
    moves_.max_local_bytes = std::max(moves_.max_local_bytes, local);
  }

  void receive(GpuRef gpu, const Piece& needed, const Stage& stage, std::size_t chunk,
               const std::vector<Piece>& mine) {
    for (int rank = 0; rank < stage.layout->tp; ++rank) {
      const Piece shard = stage.shard(chunk, rank);
      const auto piece = common(shard, needed);
      if (!piece ||
          std::any_of(mine.begin(), mine.end(), [&](const Piece& own) { return is(own, shard); }))
        continue;
      send(sender(stage, rank, gpu), gpu, bytes(*piece));
    }
  }

  static bool is(const Piece& a, const Piece& b) {
    return a.first == b.first && a.end == b.end && a.low == b.low && a.high == b.high;
  }

  GpuRef sender(const Stage& stage, int rank, GpuRef to) {
    std::optional<GpuRef> best;
    for (const plan::GroupLayout& group : stage.layout->groups) {
      const GpuRef candidate = member(group, rank);
      if (!best || rank_of(candidate, to) < rank_of(*best, to)) best = candidate;
    }
    return *best;
  }
  std::pair<bool, double> rank_of(GpuRef from, GpuRef to) {
    return {from.node != to.node, from.node == to.node ? sent_[from].inside : sent_[from].outside};
  }

  struct Traffic {
    double inside = 0, outside = 0;  ///< bytes that stay in its node, and that leave it
  };
  void send(GpuRef from, GpuRef to, double amount) {
    moves_.remote_bytes += amount;
    if (from.node == to.node) {
      sent_[from].inside += amount;
      received_[to].inside += amount;
      return;
    }
    sent_[from].outside += amount;
    received_[to].outside += amount;
    const double bandwidth = cluster_.node_bandwidth(from.node, to.node);
    node_out_[from.node] += amount / bandwidth;
    node_in_[to.node] += amount / bandwidth;
  }

  void add_time(GpuRef gpu, const Traffic& traffic) {
    moves_.link_s = std::max(
        moves_.link_s, traffic.inside / cluster_.type(cluster_.type_of(gpu)).link_bytes_per_s);
    // A GPU reaches the network through one card of its node: an even share of them all.
    const cluster::Node& node = cluster_.node(gpu.node);
    const double share = node.network_bytes_per_s / static_cast<double>(node.gpus.size());
    if (share > 0) moves_.link_s = std::max(moves_.link_s, traffic.outside / share);
  }

  const perf::Coefficients& coefficients_;
  const models::Chain chain_;
  std::vector<Stage> from_, to_;
  const cluster::Cluster& cluster_;
  const std::vector<Piece> nothing_;
  std::map<GpuRef, std::vector<Piece>> had_;
  std::map<GpuRef, Traffic> sent_, received_;
  std::map<int, double> node_in_, node_out_;  ///< seconds of each node's network
  StateMoves moves_;
};

}  // namespace

StateMoves state_moves(const perf::Coefficients& coefficients, const plan::Layout& from,
                       const plan::Layout& to, const cluster::Cluster& cluster) {
  return Comparison(coefficients, from, to, cluster).run();
}

}  // namespace swell::redeploy
