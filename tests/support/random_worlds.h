// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/state/world.h"

namespace support {

using namespace swell;
using runtime::Part;
using runtime::Shape;

inline std::int64_t pick(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

/// Returns nodes of `devices` GPUs each. Half of the nodes are in another rack, with less bandwidth
/// between the racks.
inline cluster::Cluster host_cluster(int nodes, int devices, double cross_rack = 0.5) {
  std::vector<cluster::Node> made;
  for (int i = 0; i < nodes; ++i)
    made.push_back({"n" + std::to_string(i), i % 2,
                    std::vector<int>(static_cast<std::size_t>(devices), 0), 5e10});
  return cluster::Cluster::make("hosts", {*cluster::find_gpu_type("h100")}, std::move(made),
                                {cross_rack})
      .value();
}

/// Tensors that both plans of a pair train.
struct RandomModel {
  std::vector<runtime::TensorInfo> tensors;
  std::string tied;  ///< second name of the first tensor; empty: none
};

inline RandomModel random_model(std::mt19937_64& random) {
  RandomModel model;
  const auto count = pick(random, 1, 5);
  for (std::int64_t i = 0; i < count; ++i) {
    runtime::TensorInfo info;
    info.name = "t" + std::to_string(i);
    info.layer = static_cast<int>(i);
    info.dtype = random() % 2 ? runtime::DType::f32 : runtime::DType::i64;
    for (auto dims = pick(random, 1, 3); dims > 0; --dims) info.shape.push_back(pick(random, 1, 7));
    model.tensors.push_back(std::move(info));
  }
  if (random() % 3 == 0) model.tied = "tied";
  return model;
}

/// Cuts [0, whole) at random into `parts` ranges, some of which may be empty.
inline std::vector<std::int64_t> random_cuts(std::mt19937_64& random, std::int64_t whole,
                                             std::int64_t parts) {
  std::vector<std::int64_t> cuts{0, whole};
  for (std::int64_t i = 1; i < parts; ++i) cuts.push_back(pick(random, 0, whole));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

/// Returns the ranks of a random plan over some devices of the cluster. Each tensor has its own DP
/// groups and TP degree, is cut unevenly along any dimension, or is sharded by ZeRO over all ranks
/// of its stage, with padding. Every element is held by some rank.
inline std::vector<runtime::RankState> random_ranks(const RandomModel& model,
                                                    const cluster::Cluster& cluster,
                                                    std::mt19937_64& random) {
  std::vector<runtime::RankState> ranks;
  for (int node = 0; node < static_cast<int>(cluster.nodes().size()); ++node)
    for (int device = 0; device < static_cast<int>(cluster.node(node).gpus.size()); ++device)
      if (random() % 3 != 0) ranks.push_back({{node, device}, {}});
  if (ranks.empty()) ranks.push_back({{0, 0}, {}});
  std::shuffle(ranks.begin(), ranks.end(), random);
  const auto ranks_count = static_cast<std::int64_t>(ranks.size());
  std::uintptr_t address = 4096;
  const auto hold = [&](std::int64_t rank, const runtime::TensorInfo& info, Part part,
                        const std::string& alias_of = "") {
    runtime::Entry entry{info, std::move(part), alias_of, address, 0};
    address += static_cast<std::uintptr_t>(entry.bytes());
    ranks[static_cast<std::size_t>(rank)].entries.push_back(std::move(entry));
  };
  for (std::size_t t = 0; t < model.tensors.size(); ++t) {
    const runtime::TensorInfo& info = model.tensors[t];
    const std::int64_t first = pick(random, 0, ranks_count - 1),
                       end = pick(random, first + 1, ranks_count);
    const Shape zero(info.shape.size(), 0);
    if (random() % 3 == 0) {  // ZeRO or FSDP over the stage
      const std::int64_t all = Part::whole(info.shape).elements(),
                         width = (all + end - first - 1) / (end - first);
      for (std::int64_t rank = first; rank < end; ++rank) {
        const std::int64_t from = (rank - first) * width;
        if (from < all) hold(rank, info, Part::range(zero, info.shape, from, from + width));
      }
      continue;
    }
    for (std::int64_t rank = first; rank < end;) {
      const std::int64_t tp = pick(random, 1, end - rank);
      const auto dim = static_cast<std::size_t>(
          pick(random, 0, static_cast<std::int64_t>(info.shape.size()) - 1));
      const auto cuts = random_cuts(random, info.shape[dim], tp);
      for (std::int64_t i = 0; i < tp; ++i) {
        Shape from = zero, to = info.shape;
        from[dim] = cuts[static_cast<std::size_t>(i)];
        to[dim] = cuts[static_cast<std::size_t>(i) + 1];
        if (from[dim] < to[dim]) hold(rank + i, info, Part::block(from, to));
      }
      rank += tp;
    }
  }
  // A tied model has a second copy of the first tensor, under its other name, wherever that is
  // missing.
  if (!model.tied.empty()) {
    const runtime::TensorInfo& info = model.tensors[0];
    for (std::int64_t rank = 0; rank < ranks_count; ++rank) {
      auto& entries = ranks[static_cast<std::size_t>(rank)].entries;
      if (random() % 2 || std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
            return entry.tensor.name == info.name;
          }))
        continue;
      runtime::TensorInfo other = info;
      other.name = model.tied;
      hold(rank, other, Part::whole(info.shape), info.name);
    }
  }
  return ranks;
}

}  // namespace support
