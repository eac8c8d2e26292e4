// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan/allocations.h"

#include <bit>

namespace swell::plan {

int Allocations::part_of(int node, int gpu) const noexcept {
  const auto found = by_node_.find(node);
  if (found == by_node_.end()) return 0;
  int part = 0;
  while (part < static_cast<int>(found->second.size()) &&
         (found->second[static_cast<std::size_t>(part)] >> gpu & 1) == 0)
    ++part;
  return part;
}

void Allocations::label(Layout& layout) const noexcept {
  for (StageLayout& stage : layout.stages)
    for (GroupLayout& group : stage.groups)
      group.part = group.gpus != 0 ? part_of(group.node, std::countr_zero(group.gpus)) : 0;
}

}  // namespace swell::plan
