// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/snapshots.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace swell::runtime {

void Snapshots::add(Snapshot snapshot) {
  constexpr int kKept = 3, kKeptBefore = 2;  // snapshots of this generation, and of an earlier one
  const std::uint64_t generation = snapshot.generation;
  const std::int32_t rank = snapshot.rank;
  const auto is_same = [&](const Snapshot& other) {
    return other.generation == generation && other.rank == rank;
  };
  // A snapshot of a switch does not count: other ranks may not have one of its step.
  const auto counts = [&](const Snapshot& other) { return is_same(other) && !other.is_of_switch; };
  const bool is_of_switch = snapshot.is_of_switch;
  const auto before = std::count_if(all_.begin(), all_.end(), counts);
  const bool has_enough = before + !is_of_switch >= kKept;
  auto too_many = before + 1 - kKept;
  std::map<std::pair<std::uint64_t, std::int32_t>, int> left;  // by generation and rank
  for (const Snapshot& other : all_) left[{other.generation, other.rank}] += !other.is_of_switch;
  std::erase_if(all_, [&](const Snapshot& other) {
    bool goes = (is_same(other) && other.is_of_switch) || (counts(other) && too_many-- > 0);
    if (other.generation < generation)
      goes = has_enough ||
             (!other.is_of_switch && left[{other.generation, other.rank}]-- > kKeptBefore);
    if (goes) drop(other);
    return goes;
  });
  all_.push_back(std::move(snapshot));
}

void Snapshots::drop(const Snapshot& snapshot) {
  for (const Held& held : snapshot.table) store_.drop(held.at, held.bytes());
}

Result<std::vector<Held>> Snapshots::take_copy(Store& store, const std::vector<Held>& table,
                                               std::vector<Run>& runs, std::vector<Memory>* from) {
  std::map<std::tuple<Memory, std::uint64_t, std::uint64_t>, std::uint64_t> copies;
  std::vector<Held> copy;
  for (const Held& held : table) {
    const auto [at, is_new] =
        copies.try_emplace({held.memory, held.at, held.bytes()}, std::uint64_t{0});
    if (is_new) {
      const auto taken = store.take(held.bytes());
      if (!taken) {
        for (const Held& each : copy) store.drop(each.at, each.bytes());
        return taken.error().while_doing("a snapshot");
      }
      at->second = *taken;
      runs.push_back({held.at, *taken, held.bytes()});
      if (from != nullptr) from->push_back(held.memory);
    }
    store.use(at->second, held.bytes());
    copy.push_back({held.entry, Memory::arena, at->second});
  }
  return copy;
}

bool Snapshots::has(const Run& run) const {
  for (const Snapshot& snapshot : all_)
    for (const Held& held : snapshot.table)
      if (held.covers(run)) return true;
  return false;
}

std::optional<Consistent> newest_of(const std::vector<Holder>& holders) {
  struct Found {
    std::uint32_t ranks = 0;
    /// The first of several copies.
    std::map<std::int32_t, std::pair<const Holder*, const Snapshot*>> by_rank;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, Found> found;  // by generation and step
  for (const Holder& holder : holders)
    for (const Snapshot& each : holder.snapshots) {
      Found& one = found[{each.generation, each.step}];
      one.ranks = each.ranks;
      one.by_rank.try_emplace(each.rank, &holder, &each);
    }
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    if (at->second.by_rank.size() != at->second.ranks) continue;
    Consistent made{at->first.first, at->first.second, {}, {}};
    for (const auto& [rank, found_at] : at->second.by_rank) {
      const auto& [holder, snapshot] = found_at;
      made.ranks.push_back({holder->gpu, holder->endpoint, made.roster.add(snapshot->table)});
    }
    return made;
  }
  return std::nullopt;
}

}  // namespace swell::runtime
