// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/plan/placement.h"

#include <fmt/format.h>
#include <map>

namespace swell::runtime {

std::uint64_t Fetch::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Run& run : runs) sum += run.bytes;
  return sum;
}

namespace {

/// Adds ranks' tables to a world, each tensor and each part of the roster once.
class TableAdder {
 public:
  explicit TableAdder(const Roster& roster)
      : roster_(roster),
        tensors_(roster.tensors().size(), kNone),
        parts_(roster.parts().size(), kNone) {}
  Result<void> add(cluster::GpuRef gpu, std::uint32_t table) {
    const std::uint32_t rank = builder_.add_rank(gpu);
    for (const Row& row : roster_.rows(table))
      if (auto good = add(rank, row); !good)
        return good.error().while_doing(fmt::format("rank {}", rank));
    return {};
  }
  Result<World> finish() && { return std::move(builder_).finish(); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  Result<void> add(std::uint32_t rank, const Row& row) {
    const TensorInfo& info = roster_.tensors()[row.tensor];
    std::uint32_t &tensor = tensors_[row.tensor], &part = parts_[row.part];
    if (tensor == kNone) {
      const auto added = builder_.add_tensor(info);
      if (!added) return added.error();
      tensor = *added;
    }
    if (part == kNone) part = builder_.add_part(roster_.parts()[row.part]);
    builder_.add(rank, Numbered{tensor, part});
    return row.alias == 0 ? Result<void>()
                          : builder_.add_alias(info.name, roster_.names()[row.alias - 1]);
  }
  const Roster& roster_;
  WorldBuilder builder_;
  std::vector<std::uint32_t> tensors_, parts_;  ///< the builder's numbers, by number in the roster
};

template <typename Rank>
Result<World> world_of(const Roster& roster, const std::vector<Rank>& ranks) {
  TableAdder adder(roster);
  for (const Rank& rank : ranks)
    if (auto good = adder.add(rank.gpu, rank.table); !good) return good.error();
  return std::move(adder).finish();
}

}  // namespace

Result<World> old_world(const Prepare& plan) { return world_of(plan.roster, plan.from); }
Result<World> new_world(const Prepare& plan) { return world_of(plan.roster, plan.to); }

const Held* Sources::find(const Move& move) {
  const auto [its, is_new] = by_rank_.try_emplace(move.from_rank);
  if (is_new)
    for (Held& held : plan_.roster.held(plan_.from[move.from_rank].table)) {
      const std::pair key(from_.find(held.entry.tensor.name), held.entry.part);
      its->second.insert_or_assign(key, std::move(held));
    }
  const auto at =
      its->second.find({&from_.tensors()[move.from_tensor], from_.part(move.from_part)});
  return at != its->second.end() ? &at->second : nullptr;
}

Result<void> place_all(const Prepare& plan, const World& from, const World& to,
                       const std::vector<Move>& moves, Store& store, Placement& made) {
  const std::vector<Entry> entries =
      plan.roster.entries(plan.to[static_cast<std::size_t>(plan.new_rank)].table);
  // Moves name tensors by their stored name, not by an alias, and parts by number.
  using Key = std::pair<const World::Tensor*, Part>;
  std::map<Key, std::vector<const Move*>> by_part;
  for (const Move& move : moves)
    by_part[{&to.tensors()[move.tensor], to.part(move.to_part)}].push_back(&move);
  Sources sources(plan, from);
  const auto use = [&](const Held& held) {
    if (held.memory == Memory::device) store.slabs().use(held.at);
    else store.use(held.at, held.bytes());
  };
  /// Returns whether an old tensor's memory can become the new part without a copy.
  const auto can_stay = [&](const Held& old, const Held& held) {
    if (old.memory != held.memory) return false;
    if (old.memory == Memory::arena) return true;
    const Slabs::Slab* slab = store.slabs().find(DevicePlace::slab(old.at));
    return slab != nullptr && slab->fd != nullptr && slab->gpu == made.gpu;
  };
  std::map<Key, const Held*> placed;
  made.table.reserve(entries.size());
  for (const Entry& entry : entries) {
    Held held{entry, memory_of(entry), own_place_of(entry)};
    const World::Tensor* tensor = to.find(entry.tensor.name);
    const auto done = placed.find({tensor, entry.part});
    if (done != placed.end() && done->second->memory == held.memory && !is_own(held.memory)) {
      held.at = done->second->at;
      use(held);
      made.table.push_back(std::move(held));
      continue;
    }
    const std::int64_t element = bytes_of(entry.tensor.dtype);
    const std::vector<const Move*>& its = by_part[{tensor, entry.part}];
    const Held* kept = nullptr;
    if (!its.empty() && its.front()->nearness == Nearness::in_place &&
        static_cast<std::int32_t>(its.front()->from_rank) == plan.old_rank &&
        !is_own(held.memory)) {
      kept = sources.find(*its.front());
      if (kept != nullptr && !can_stay(*kept, held)) kept = nullptr;
    }
    if (kept != nullptr) {
      // One run of the old memory becomes the new part.
      std::int64_t shift = 0;
      each_run(its.front()->box, kept->entry.part, entry.part,
               [&](std::int64_t a, std::int64_t b, std::int64_t) { shift = a - b; });
      held.at = kept->at + static_cast<std::uint64_t>(shift * element);
      use(held);
      if (held.memory == Memory::device) made.kept_slabs.insert(DevicePlace::slab(held.at));
      made.kept_bytes += static_cast<std::uint64_t>(entry.bytes());
    } else {
      if (held.memory == Memory::device) {
        held.at = store.slabs().take(made.gpu, static_cast<std::uint64_t>(entry.bytes()),
                                     made.slab_bytes);
        use(held);
      } else if (held.memory == Memory::arena) {
        const auto at = store.take(static_cast<std::uint64_t>(entry.bytes()));
        if (!at) return at.error().while_doing("tensor " + entry.tensor.name);
        held.at = *at;
        use(held);
        made.fresh.emplace_back(*at, static_cast<std::uint64_t>(entry.bytes()));
        made.fresh_bytes += Extents::rounded(static_cast<std::uint64_t>(entry.bytes()));
      }
      for (const Move* move : its) {
        const Held* source = sources.find(*move);
        if (source == nullptr)
          return Error(fmt::format("tensor {}: its source, rank {}, does not hold it",
                                   entry.tensor.name, move->from_rank));
        Fetch fetch{static_cast<std::int32_t>(move->from_rank),
                    source->memory,
                    held.memory,
                    {},
                    move->only_there,
                    move->chunk};
        each_run(move->box, source->entry.part, entry.part,
                 [&](std::int64_t a, std::int64_t b, std::int64_t count) {
                   fetch.runs.push_back({source->at + static_cast<std::uint64_t>(a * element),
                                         held.at + static_cast<std::uint64_t>(b * element),
                                         static_cast<std::uint64_t>(count * element)});
                 });
        made.fetches.push_back(std::move(fetch));
      }
    }
    made.table.push_back(std::move(held));
    placed[{tensor, entry.part}] = &made.table.back();
  }
  if (made.granularity > 0) made.fresh_slabs = store.slabs().seal(made.granularity);
  for (const SlabSize& slab : made.fresh_slabs) made.fresh_bytes += slab.bytes;
  return {};
}

}  // namespace swell::runtime
