// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"

namespace swell::plan {

/// GPUs of each of a job's allocations, for nodes where a program cannot open the GPUs of another
/// allocation (Interconnect::devices_apart). An allocation's number on a node is its index in the
/// order of add() calls for that node. Without allocations, all GPUs of a node have part 0.
class Allocations {
 public:
  /// Adds the job's next allocation on `node`.
  void add(int node, GpuMask gpus) { by_node_[node].push_back(gpus); }
  /// Returns the part that a GPU of `node` belongs to. If it is in no allocation, returns the part
  /// of the job's next allocation there.
  int part_of(int node, int gpu) const noexcept;
  cluster::GpuRef gpu(int node, int index) const noexcept {
    return {node, index, part_of(node, index)};
  }
  /// Sets the part of each group. A group over two allocations gets the part of its first GPU.
  void label(Layout& layout) const noexcept;
  bool empty() const noexcept { return by_node_.empty(); }
  friend bool operator==(const Allocations&, const Allocations&) = default;

 private:
  std::map<int, std::vector<GpuMask>> by_node_;
};

}  // namespace swell::plan
