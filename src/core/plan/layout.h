// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"

namespace swell::models {
struct Model;
}

namespace swell::plan {

/// Set of GPUs of one node: bit k is GPU k.
using GpuMask = std::uint64_t;

/// A TP group with its names resolved against one cluster.
struct GroupLayout {
  int node = 0;         ///< index into Cluster::nodes
  int type = 0;         ///< index into Cluster::types
  int local_batch = 0;  ///< b_{i,j}
  GpuMask gpus = 0;
  int part = 0;  ///< number of the job's allocation on that node (allocations.h)
  friend bool operator==(const GroupLayout&, const GroupLayout&) = default;
};

/// Returns whether two groups, or islands, are on one node and in one allocation: only such GPUs
/// reach each other over the node's links.
template <typename A, typename B>
bool together(const A& a, const B& b) noexcept {
  return a.node == b.node && a.part == b.part;
}

struct StageLayout {
  int layers = 0;
  /// GPUs of a group: the TP degree times the model's CP degree. The planner does not separate the
  /// two; code that divides by TP alone takes CP from the model (docs/performance-model.md).
  int tp = 1;
  std::vector<GroupLayout> groups;
  std::vector<int> chunks{};  ///< Stage::chunks
  int dp() const noexcept { return static_cast<int>(groups.size()); }
  int gpu_count() const noexcept { return dp() * tp; }
  friend bool operator==(const StageLayout&, const StageLayout&) = default;
};

/// A plan with indexes instead of names, for the performance model and the planner. Valid only with
/// the cluster against which it was resolved.
struct Layout {
  int micro_batches = 1;
  std::vector<StageLayout> stages;
  std::string schedule{};  ///< Plan::schedule
  int pp() const noexcept { return static_cast<int>(stages.size()); }
  /// Returns whether the units of each chunk are listed. If not, each stage has one chunk with its
  /// layers.
  bool has_chunks() const noexcept { return !stages.empty() && !stages.front().chunks.empty(); }
  /// Returns whether time and memory are computed from the single passes of a schedule. If not, the
  /// plan runs 1F1B with one chunk, which has a closed form.
  bool is_scheduled() const noexcept { return has_chunks() || !schedule.empty(); }
  /// Returns the number of chunks of each stage.
  int chunks() const noexcept {
    return has_chunks() ? static_cast<int>(stages.front().chunks.size()) : 1;
  }
  /// Returns the samples of one micro-batch over all groups of a stage; 0 without stages.
  int micro_batch() const noexcept {
    int sum = 0;
    if (!stages.empty())
      for (const GroupLayout& group : stages.front().groups) sum += group.local_batch;
    return sum;
  }
  int gpu_count() const noexcept {
    int sum = 0;
    for (const StageLayout& stage : stages) sum += stage.gpu_count();
    return sum;
  }
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Returns the schedule that `layout` runs. Returns an error if it has too many passes, or its
/// schedule does not exist for its shape.
Result<schedule::Schedule> schedule_of(const Layout& layout);

/// Replaces the names of `plan` by indexes. Returns an error for an unknown name. REQUIRES:
/// validate() accepts the plan on `cluster`.
Result<Layout> resolve(const Plan& plan, const cluster::Cluster& cluster);
/// Returns the plan of `layout`, with names instead of indexes, for a model without CP and EP.
Plan name_all(const Layout& layout, const cluster::Cluster& cluster);
/// Does the same with CP and EP of `model`.
Plan name_all(const Layout& layout, const cluster::Cluster& cluster, const models::Model& model);

}  // namespace swell::plan
