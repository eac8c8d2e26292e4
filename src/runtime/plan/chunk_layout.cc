// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/plan/chunk_layout.h"

#include <algorithm>

#include "runtime/state/region.h"

namespace swell::runtime {

namespace {

std::uint32_t index_in(const World::Distribution& holders, Holding holding) {
  return static_cast<std::uint32_t>(std::lower_bound(holders.begin(), holders.end(), holding) -
                                    holders.begin());
}

Extent extent_of(const Box& box, const Part& part, std::int64_t element) {
  std::array<std::int64_t, kMaxDims> last = box.end;
  for (std::size_t d = 0; d < static_cast<std::size_t>(box.dims); ++d) --last[d];
  return {offset_in(part, box.begin) * element, (offset_in(part, last) + 1) * element};
}

}  // namespace

Holdings::Holdings(const World& world) : world_(world), next_(world.tensors().size()) {
  for (const World::Tensor& tensor : world.tensors()) {
    first_.push_back(count_);
    count_ += world.distribution_of(tensor).size();
  }
}

std::size_t Holdings::index_of(std::uint32_t tensor, Holding holding) {
  const auto& its = world_.distribution_of(world_.tensors()[tensor]);
  std::size_t at = next_[tensor];
  if (at >= its.size() || its[at] != holding) at = index_in(its, holding);
  next_[tensor] = at + 1;
  return at;
}

Layout layout_of(const ReshardPlan& reshard, const World& from,
                 const World::Distribution& old_holders, const World& to,
                 const World::Distribution& new_holders, std::int64_t element) {
  Layout made;
  made.needs.resize(new_holders.size());
  made.from.resize(reshard.candidates.size());
  made.from_index.resize(reshard.candidates.size());
  for (std::uint32_t n = 0; n < reshard.needs.size(); ++n) {
    const Need& need = reshard.needs[n];
    Layout::Range& its = made.needs[index_in(new_holders, {need.to_rank, need.to_part})];
    if (its.count++ == 0) its.first = n;  // a holder's needs are consecutive
    made.to.push_back(extent_of(need.box, to.part(need.to_part), element));
    for (std::uint32_t c = need.first; c < need.first + need.count; ++c) {
      const Candidate& candidate = reshard.candidates[c];
      made.from[c] = extent_of(need.box, from.part(candidate.part), element);
      made.from_index[c] = index_in(old_holders, {candidate.rank, candidate.part});
    }
  }
  return made;
}

}  // namespace swell::runtime
