// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <vector>

#include "core/planner/clump.h"
#include "core/policy/view.h"

namespace swell::policy {

/// Which GPUs are free while a policy hands them out. A value: copy it to try something.
class GpuPool {
 public:
  /// What is idle in `view`, whose `machines` must be there and outlive this.
  explicit GpuPool(const ClusterView& view);

  void give(const planner::Clumps& gpus);
  /// All of them must be free.
  void take(const planner::Clumps& gpus);
  bool has(const planner::Clumps& gpus) const noexcept;

  int free(int type) const noexcept;
  /// GPUs of `type` on nodes that are up, free or not.
  int all(int type) const noexcept;
  /// GPUs of `type` on the node that has the most, and how many nodes have as many.
  int per_node(int type) const noexcept;
  int full_nodes(int type) const noexcept;

  /// Takes `gpus` GPUs of one node: of the one with the fewest free that suffice.
  std::optional<planner::Clumps> take_on_one(int type, int gpus);
  /// Takes that many whole idle nodes of per_node() GPUs, those of `near` first.
  std::optional<planner::Clumps> take_whole(int type, int nodes, const planner::Clumps& near = {});
  /// Takes `gpus` GPUs on as few nodes as possible, those of `near` first.
  std::optional<planner::Clumps> take_packed(int type, int gpus, const planner::Clumps& near = {});

  /// One node's GPUs of one type.
  struct Slot {
    int node = 0;
    int type = 0;
    plan::GpuMask all = 0;  ///< none where the node is down
    plan::GpuMask free = 0;
  };
  const std::vector<Slot>& slots() const noexcept { return slots_; }

 private:
  Slot* slot(int node, int type) noexcept;
  const Slot* slot(int node, int type) const noexcept;
  planner::Clump cut(Slot& slot, int gpus) noexcept;
  std::vector<Slot> slots_;
  std::vector<std::size_t> first_;  ///< by node: its first slot
};

}  // namespace swell::policy
