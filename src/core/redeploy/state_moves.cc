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

/// Units [first, end) of the model. `low` and `high` (0 to 1) bound the part of each unit: along
/// the TP split, and within a TP shard along the split over replicas. If EP divides experts, the
/// piece is either the experts from `from` to `to` (0 to 1) of each layer, or everything else.
struct Piece {
  int first = 0, end = 0;
  double low = 0, high = 0;
  bool experts = false;
  double from = 0, to = 1;
  friend bool operator==(const Piece&, const Piece&) = default;
};

std::optional<Piece> common(const Piece& a, const Piece& b) {
  if (a.experts != b.experts) return std::nullopt;
  const Piece both{std::max(a.first, b.first),
                   std::min(a.end, b.end),
                   std::max(a.low, b.low),
                   std::min(a.high, b.high),
                   a.experts,
                   std::max(a.from, b.from),
                   std::min(a.to, b.to)};
  constexpr double kRounding = 1e-9;  // smaller overlaps of shards are rounding errors
  if (both.first >= both.end || both.high - both.low < kRounding || both.to - both.from < kRounding)
    return std::nullopt;
  return both;
}

/// Returns the GPU at position `rank` of its TP x CP group.
GpuRef member(const plan::GroupLayout& group, int rank) {
  plan::GpuMask left = group.gpus;
  for (; rank > 0; --rank) left &= left - 1;
  return {group.node, std::countr_zero(left)};
}

/// A stage's chunks and the GPUs that hold them. A GPU's TP rank is its position in its group
/// modulo TP, its CP rank the quotient, and its EP rank its number among the DP x CP ranks modulo
/// EP.
struct Stage {
  struct Shard {
    double low = 0, high = 0;
    bool experts = false;
    double from = 0, to = 1;
    std::vector<GpuRef> holders = {};
  };
  std::vector<std::pair<int, int>> chunks;  ///< chunks with units, as [first, end)
  std::vector<Shard> shards;                ///< distinct shards of each chunk
  const plan::StageLayout* layout = nullptr;

  Piece piece(std::size_t chunk, const Shard& shard) const {
    return {chunks[chunk].first, chunks[chunk].second, shard.low, shard.high,
            shard.experts,       shard.from,           shard.to};
  }
  Piece whole(std::size_t chunk, bool experts) const {
    return {chunks[chunk].first, chunks[chunk].second, 0, 1, experts, 0, 1};
  }
};

/// Returns the number of replicas over which a TP shard of the state is sharded: 1 unless most of
/// the state is sharded.
int slices_of(const perf::Coefficients& coefficients, int dp) {
  if (coefficients.sharded_state < 0.5) return 1;
  return coefficients.max_shards > 0 ? std::min(dp, coefficients.max_shards) : dp;
}

/// Adds the shards of a stage. TP shards are divided into `slices`, and group i has slice i %
/// slices. Shards of EP's experts are not sliced.
void add_shards(Stage& stage, const Ranks& ranks, int slices) {
  const int tp = stage.layout->tp / ranks.cp;
  for (int of_tp = 0; of_tp < tp; ++of_tp)
    for (int slice = 0; slice < slices; ++slice) {
      const double all = tp * slices, at = of_tp * slices + slice;
      stage.shards.push_back({.low = at / all, .high = (at + 1) / all});
    }
  const std::size_t of_experts = stage.shards.size();
  for (int of_ep = 0; ranks.ep > 1 && of_ep < ranks.ep; ++of_ep)
    for (int of_tp = 0; of_tp < tp; ++of_tp)
      stage.shards.push_back({.low = static_cast<double>(of_tp) / tp,
                              .high = static_cast<double>(of_tp + 1) / tp,
                              .experts = true,
                              .from = static_cast<double>(of_ep) / ranks.ep,
                              .to = static_cast<double>(of_ep + 1) / ranks.ep});
  int number = 0, copy = 0;  // number of the group; number among the DP x CP ranks
  for (const plan::GroupLayout& group : stage.layout->groups) {
    for (int of_cp = 0; of_cp < ranks.cp; ++of_cp, ++copy)
      for (int of_tp = 0; of_tp < tp; ++of_tp) {
        const GpuRef gpu = member(group, of_cp * tp + of_tp);
        const int at = of_tp * slices + number % slices, expert = copy % ranks.ep * tp + of_tp;
        stage.shards[static_cast<std::size_t>(at)].holders.push_back(gpu);
        if (ranks.ep > 1)
          stage.shards[of_experts + static_cast<std::size_t>(expert)].holders.push_back(gpu);
      }
    ++number;
  }
}

std::vector<Stage> stages_of(const plan::Layout& layout, const models::Chain& chain,
                             const Ranks& ranks, const perf::Coefficients& coefficients) {
  const std::vector<plan::UnitRange> ranges = plan::unit_ranges(layout, chain);
  const std::size_t chunks = static_cast<std::size_t>(layout.chunks());
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < layout.stages.size(); ++i) {
    Stage& stage = stages.emplace_back(Stage{{}, {}, &layout.stages[i]});
    add_shards(stage, ranks, slices_of(coefficients, stage.layout->dp()));
    for (std::size_t chunk = 0; chunk < chunks; ++chunk)
      if (const plan::UnitRange& units = ranges[i * chunks + chunk]; units.count() > 0)
        stage.chunks.emplace_back(units.first, units.end);
  }
  return stages;
}

/// Returns the units of both plans. The number of MTP heads is known if a plan lists chunks.
models::Chain chain_of(const plan::Layout& from, const plan::Layout& to) {
  models::Model model;
  for (const plan::StageLayout& stage : from.stages) model.layers += stage.layers;
  model.mtp_heads = std::max(plan::mtp_heads_of(from), plan::mtp_heads_of(to));
  return models::Chain(model);
}

class Comparison {
 public:
  Comparison(const perf::Coefficients& coefficients, const plan::Layout& from,
             const plan::Layout& to, const cluster::Cluster& cluster, const Ranks& ranks)
      : coefficients_(coefficients),
        ranks_(ranks),
        chain_(chain_of(from, to)),
        from_(stages_of(from, chain_, ranks, coefficients)),
        to_(stages_of(to, chain_, ranks, coefficients)),
        cluster_(cluster),
        had_(held(from_)) {}

  StateMoves run() {
    moves_.whole_bytes = bytes({0, chain_.units(), 0, 1});
    if (ranks_.ep > 1) moves_.whole_bytes += bytes({0, chain_.units(), 0, 1, true});
    for (const auto& [gpu, pieces] : had_)
      moves_.max_had_bytes = std::max(moves_.max_had_bytes, bytes(pieces));
    const Held needed = held(to_);
    for (const Stage& stage : to_)
      for (const plan::GroupLayout& group : stage.layout->groups)
        for (int rank = 0; rank < stage.layout->tp; ++rank)
          if (const auto found = needed.find(member(group, rank)); found != needed.end())
            receive(found->first, found->second);
    for (const auto& [gpu, sent] : sent_) add_time(gpu, sent);
    for (const auto& [gpu, got] : received_) add_time(gpu, got);
    for (const auto& [node, busy_s] : node_in_) moves_.link_s = std::max(moves_.link_s, busy_s);
    for (const auto& [node, busy_s] : node_out_) moves_.link_s = std::max(moves_.link_s, busy_s);
    return moves_;
  }

 private:
  /// Pieces that each GPU holds under a plan.
  using Held = std::map<GpuRef, std::vector<Piece>>;

  static Held held(const std::vector<Stage>& stages) {
    Held held;
    for (const Stage& stage : stages)
      for (const Stage::Shard& shard : stage.shards)
        for (const GpuRef gpu : shard.holders)
          for (std::size_t chunk = 0; chunk < stage.chunks.size(); ++chunk)
            held[gpu].push_back(stage.piece(chunk, shard));
    return held;
  }

  double bytes(const Piece& piece) const {
    const models::Load load = chain_.load(piece.first, piece.end);
    // Coefficients are sums over the CP ranks, which hold identical copies.
    const double held = (load.layers + load.modules) * coefficients_.param_optim_bytes;
    const double share = (piece.high - piece.low) / ranks_.cp;
    if (piece.experts) return held * ranks_.experts * ranks_.ep * (piece.to - piece.from) * share;
    double sum = held * (1 - ranks_.experts);
    if (load.has_embedding()) sum += coefficients_.first.param_optim_bytes;
    if (load.has_output()) sum += coefficients_.last.param_optim_bytes;
    return sum * share;
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
          if (common(stage.whole(chunk, piece.experts), piece))
            receive(gpu, piece, stage, chunk, mine);
    }
    moves_.max_local_bytes = std::max(moves_.max_local_bytes, local);
  }

  void receive(GpuRef gpu, const Piece& needed, const Stage& stage, std::size_t chunk,
               const std::vector<Piece>& mine) {
    for (const Stage::Shard& shard : stage.shards) {
      const Piece whole = stage.piece(chunk, shard);
      const auto piece = common(whole, needed);
      if (!piece ||
          std::any_of(mine.begin(), mine.end(), [&](const Piece& own) { return own == whole; }))
        continue;
      send(sender(shard, gpu), gpu, bytes(*piece));
    }
  }

  GpuRef sender(const Stage::Shard& shard, GpuRef to) {
    std::optional<GpuRef> best;
    for (const GpuRef candidate : shard.holders)
      if (!best || rank_of(candidate, to) < rank_of(*best, to)) best = candidate;
    return *best;
  }
  std::pair<bool, double> rank_of(GpuRef from, GpuRef to) {
    return {from.node != to.node, from.node == to.node ? sent_[from].inside : sent_[from].outside};
  }

  struct Traffic {
    double inside = 0, outside = 0;  ///< bytes that stay in the node, and bytes that leave it
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
    // A GPU reaches the network through one card of its node: an equal share of the node's
    // bandwidth.
    const cluster::Node& node = cluster_.node(gpu.node);
    const double share = node.network_bytes_per_s / static_cast<double>(node.gpus.size());
    if (share > 0) moves_.link_s = std::max(moves_.link_s, traffic.outside / share);
  }

  const perf::Coefficients& coefficients_;
  const Ranks ranks_;
  const models::Chain chain_;
  const std::vector<Stage> from_, to_;
  const cluster::Cluster& cluster_;
  const std::vector<Piece> nothing_;
  const Held had_;
  std::map<GpuRef, Traffic> sent_, received_;
  std::map<int, double> node_in_, node_out_;  ///< seconds of each node's network
  StateMoves moves_;
};

}  // namespace

Ranks ranks_of(const models::Model& model) {
  Ranks ranks{model.cp, model.ep, 0};
  if (model.ep == 1) return ranks;
  // A rank does not hold the experts of the ep - 1 other ranks, each of which has as many.
  const double held = model.held_layer_parameters();
  ranks.experts = (model.layer_parameters() - held) / (model.ep - 1) / held;
  return ranks;
}

StateMoves state_moves(const perf::Coefficients& coefficients, const plan::Layout& from,
                       const plan::Layout& to, const cluster::Cluster& cluster,
                       const Ranks& ranks) {
  return Comparison(coefficients, from, to, cluster, ranks).run();
}

}  // namespace swell::redeploy
