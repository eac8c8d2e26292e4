// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/starts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/planner/symmetric.h"

namespace swell::planner {

namespace {

constexpr std::size_t kMostTypes = 3;  // combinations of degrees grow with the power of the types
constexpr int kMostNodes = 8;
constexpr int kFewGpus = 16;       // up to which every cut in two is tried

class Starts {
 public:
  Starts(Evaluator& evaluator, int micro_batches, const Degrees& degrees)
      : evaluator_(evaluator), micro_batches_(micro_batches), degrees_(degrees) {}

  void symmetric(const Clumps& gpus, const Clumps& others) {
    Found found = best_symmetric(evaluator_, gpus, micro_batches_, degrees_, {});
    add_all(found.idle, others);
    keep(std::move(found));
  }

  /// One stage for each part, whose degrees are tried in every combination.
  void one_stage_each(const std::vector<Clumps>& parts, plan::Layout layout, Clumps idle, bool same_tp) {
    if (layout.stages.size() == parts.size()) {
      const double seconds = evaluator_.finish(layout);
      keep({std::move(layout), std::move(idle), seconds, "from scratch: a stage for each part of the cluster"});
      return;
    }
    for (int tp : degrees_.tp) {
      if (same_tp && !layout.stages.empty() && layout.stages[0].tp != tp) continue;
      Clumps left = parts[layout.stages.size()];
      plan::StageLayout stage{0, tp, {}};
      if (take_groups(stage, left, tp, degrees_.most_dp) == 0) continue;
      plan::Layout longer = layout;
      longer.stages.push_back(std::move(stage));
      Clumps rest = idle;
      add_all(rest, left);
      one_stage_each(parts, std::move(longer), std::move(rest), same_tp);
    }
  }

  /// The first GPUs as one stage and the others as another, wherever the cut is; the best of all.
  void two_stages(const Clumps& gpus) {
    Found best;
    best.seconds = std::numeric_limits<double>::infinity();
    Clumps front, rear = gpus;
    while (count(rear) > 1) {
      Clump& next = rear.front();
      const plan::GpuMask gpu = next.gpus & (~next.gpus + 1);
      add_to(front, next.node, next.type, gpu);
      next.gpus ^= gpu;
      if (next.gpus == 0) rear.erase(rear.begin());
      for (int front_tp : degrees_.tp)
        for (int rear_tp : degrees_.tp) {
          Clumps idle = front, left = rear;
          plan::Layout layout{micro_batches_, {{0, front_tp, {}}, {0, rear_tp, {}}}};
          if (take_groups(layout.stages[0], idle, front_tp, degrees_.most_dp) == 0) continue;
          if (take_groups(layout.stages[1], left, rear_tp, degrees_.most_dp) == 0) continue;
          const double seconds = evaluator_.finish(layout, best.seconds);
          if (!(seconds < best.seconds)) continue;
          add_all(idle, left);
          best = {std::move(layout), std::move(idle), seconds, "from scratch: two stages"};
        }
    }
    keep(std::move(best));
  }

  std::vector<Found> take() {
    std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.seconds < b.seconds; });
    return std::move(found_);
  }

 private:
  void keep(Found found) {
    if (found.seconds < 1e300) found_.push_back(std::move(found));
  }
  Evaluator& evaluator_;
  int micro_batches_;
  const Degrees& degrees_;
  std::vector<Found> found_;
};

/// `gpus` split by what `key` says of each clump.
template <typename Key>
std::vector<Clumps> split_by(const Clumps& gpus, const Key& key) {
  std::vector<std::pair<int, Clumps>> parts;
  for (const Clump& clump : gpus) {
    const int mine = key(clump);
    auto part = std::find_if(parts.begin(), parts.end(), [&](const auto& one) { return one.first == mine; });
    if (part == parts.end()) part = parts.insert(parts.end(), {mine, {}});
    part->second.push_back(clump);
  }
  std::vector<Clumps> result;
  for (auto& [value, clumps] : parts) result.push_back(std::move(clumps));
  return result;
}

}  // namespace

std::vector<Found> fresh_starts(Evaluator& evaluator, const Clumps& gpus, int micro_batches, const Degrees& degrees) {
  Starts starts(evaluator, micro_batches, degrees);
  starts.symmetric(gpus, {});
  const auto types = split_by(gpus, [](const Clump& clump) { return clump.type; });
  const auto nodes = split_by(gpus, [](const Clump& clump) { return clump.node; });
  if (types.size() > 1 && types.size() <= kMostTypes) {
    for (std::size_t t = 0; t < types.size(); ++t) {
      Clumps others;
      for (std::size_t other = 0; other < types.size(); ++other)
        if (other != t) add_all(others, types[other]);
      starts.symmetric(types[t], others);
    }
    starts.one_stage_each(types, {micro_batches, {}}, {}, false);
    starts.one_stage_each({types.rbegin(), types.rend()}, {micro_batches, {}}, {}, false);
  }
  if (nodes.size() > 1 && static_cast<int>(nodes.size()) <= kMostNodes) starts.one_stage_each(nodes, {micro_batches, {}}, {}, true);
  if (count(gpus) <= kFewGpus) {
    Clumps ordered = gpus;
    const auto by_type = [](const Clump& a, const Clump& b) { return std::pair(a.type, a.node) < std::pair(b.type, b.node); };
    std::sort(ordered.begin(), ordered.end(), by_type);
    starts.two_stages(ordered);
    if (types.size() > 1) starts.two_stages({ordered.rbegin(), ordered.rend()});
  }
  return starts.take();
}

}  // namespace swell::planner
