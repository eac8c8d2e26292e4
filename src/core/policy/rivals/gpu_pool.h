// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <vector>

#include "core/planner/island.h"
#include "core/policy/view.h"

namespace swell::policy {

/// Free GPUs while a policy hands them out. Copy the object to try something.
class GpuPool {
 public:
  /// Holds the idle GPUs of `view`. REQUIRES: its `machines` is not null and outlives the pool.
  explicit GpuPool(const ClusterView& view);

  /// Puts `gpus` back.
  void give(const planner::Islands& gpus);
  /// Takes `gpus` out of the pool. REQUIRES: all of them are free.
  void take(const planner::Islands& gpus);
  bool has(const planner::Islands& gpus) const noexcept;

  int free(int type) const noexcept;
  /// Returns the number of GPUs of `type` on nodes that are up, free or not.
  int all(int type) const noexcept;
  /// Returns the maximum GPUs of `type` on one node; full_nodes(): how many nodes have that many.
  int per_node(int type) const noexcept;
  int full_nodes(int type) const noexcept;

  /// Takes `gpus` GPUs of one node: the one with the fewest free GPUs that suffices.
  std::optional<planner::Islands> take_on_one(int type, int gpus);
  /// Takes `nodes` whole idle nodes of per_node() GPUs, those of `near` first.
  std::optional<planner::Islands> take_whole(int type, int nodes,
                                             const planner::Islands& near = {});
  /// Takes `gpus` GPUs on as few nodes as possible, those of `near` first.
  std::optional<planner::Islands> take_packed(int type, int gpus,
                                              const planner::Islands& near = {});

  /// One node's GPUs of one type.
  struct Slot {
    int node = 0;
    int type = 0;
    plan::GpuMask all = 0;  ///< empty if the node is down
    plan::GpuMask free = 0;
  };
  const std::vector<Slot>& slots() const noexcept { return slots_; }

 private:
  Slot* slot(int node, int type) noexcept;
  const Slot* slot(int node, int type) const noexcept;
  planner::Island cut(Slot& slot, int gpus) noexcept;
  std::vector<Slot> slots_;
  std::vector<std::size_t> first_;  ///< index of each node's first slot
};

}  // namespace swell::policy
