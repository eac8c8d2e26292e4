// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/starts.h"

#include <algorithm>

#include "core/planner/symmetric.h"

namespace swell::planner {

namespace {

constexpr std::size_t kMostTypes = 3;  // combinations of degrees grow with the power of the types
constexpr int kMostNodes = 8;

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
  return starts.take();
}

}  // namespace swell::planner
