// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <criterion/criterion.h>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/keeper/chunks.h"
#include "runtime/plan/placement.h"
#include "support/known_bytes.h"
#include "support/random_worlds.h"

// Shared by tests of plans in chunks of state on GPUs: a job of which each byte is known.
namespace slab_jobs {

using namespace swell;
using namespace swell::runtime;
using support::pick;

inline constexpr std::uint64_t kPage = 16, kUnit = 32;

inline std::uint64_t rounded(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct SlabMemory {
  std::string gpu;
  std::vector<std::uint8_t> bytes;
  bool is_there = false;
};

/// The memory of one shim for one state: pages of its arena, and slabs.
class ShimMemory {
 public:
  std::uint8_t& byte(Memory memory, std::uint64_t at) {
    if (memory == Memory::arena) {
      cr_assert(pages.contains(at / kPage), "a page has gone, or was not taken");
      return pages[at / kPage][at % kPage];
    }
    SlabMemory& slab = slabs.at(DevicePlace::slab(at));
    cr_assert(slab.is_there, "a slab has gone, or was not taken");
    return slab.bytes.at(DevicePlace::offset(at));
  }
  std::uint64_t take(Memory memory, std::uint64_t bytes, const GpuMemory& gpu) {
    bytes = rounded(bytes, kPage);
    if (memory == Memory::arena) return std::exchange(next_, next_ + bytes);
    if (slabs.empty() || !fits_in_slab(slabs.rbegin()->second.bytes.size(), bytes, gpu.slab_bytes))
      slabs[slabs.size() + 1] = {gpu.gpu, {}, false};
    auto& [number, slab] = *slabs.rbegin();
    const std::uint64_t at = DevicePlace::of(number, slab.bytes.size());
    slab.bytes.resize(slab.bytes.size() + bytes);
    return at;
  }
  void seal() {
    for (auto& [number, slab] : slabs) slab.bytes.resize(rounded(slab.bytes.size(), kUnit));
  }
  void put(Memory memory, std::uint64_t at, std::uint64_t bytes) {
    if (memory == Memory::device) slabs.at(DevicePlace::slab(at)).is_there = true;
    else
      for (std::uint64_t page = at / kPage; page < rounded(at + bytes, kPage) / kPage; ++page)
        pages[page].resize(kPage);
  }
  std::uint64_t on_host() const { return kPage * pages.size(); }
  std::uint64_t on(const std::string& gpu) const {
    std::uint64_t sum = 0;
    for (const auto& [number, slab] : slabs)
      if (slab.is_there && slab.gpu == gpu) sum += slab.bytes.size();
    return sum;
  }
  std::map<std::uint64_t, std::vector<std::uint8_t>> pages;
  std::map<std::uint64_t, SlabMemory> slabs;

 private:
  std::uint64_t next_ = 0;
};

inline std::string gpu_of(cluster::GpuRef gpu) {
  return "GPU-" + std::to_string(gpu.node) + "-" + std::to_string(gpu.index);
}

/// Both plans of a switch as a coordinator has them, and the memory of all shims.
struct Job {
  Job(const std::vector<RankState>& old_ranks, const std::vector<RankState>& new_ranks,
      std::mt19937_64& random) {
    const auto memory = [&, seed = random()](Entry& entry) {
      // Most tensors are on the GPU, some in the arena; seldom do both plans differ.
      const bool on_gpu =
          (std::hash<std::string>()(entry.alias_of.empty() ? entry.tensor.name : entry.alias_of) ^
           seed) % 4 !=
              0 &&
          random() % 16 != 0;
      entry.address = 0;
      entry.device = on_gpu ? 0 : -1;
    };
    for (const RankState& rank : old_ranks) {
      OldRank made{rank.gpu, {}, 0, false, {}};
      std::vector<Held>& its_holds = holds.emplace_back();
      ShimMemory its;
      const GpuMemory where{gpu_of(rank.gpu), kUnit, kUnit * (1 + random() % 4), {}};
      for (Entry entry : rank.entries) {
        memory(entry);
        // A slab may have had others, which have gone.
        if (random() % 8 == 0) its.take(Memory::device, kPage, where);
        const auto bytes = static_cast<std::uint64_t>(entry.bytes());
        its_holds.push_back({entry, memory_of(entry), its.take(memory_of(entry), bytes, where)});
      }
      its.seal();
      std::set<std::uint64_t> used;
      for (const Held& held : its_holds) {
        its.put(held.memory, held.at, held.bytes());
        if (held.memory == Memory::device) used.insert(DevicePlace::slab(held.at));
        support::each_known_byte(held.entry, [&](std::uint64_t at, std::uint8_t value) {
          its.byte(held.memory, held.at + at) = value;
        });
      }
      for (const std::uint64_t slab : used)
        made.memory.slabs.push_back({slab, its.slabs[slab].bytes.size(), where.gpu});
      made.table = plan.roster.add(its_holds);
      plan.from.push_back(std::move(made));
      old.push_back(std::move(its));
    }
    for (const RankState& rank : new_ranks) {
      std::vector<Entry>& its = entries.emplace_back();
      // Seldom another shim on that GPU, or another GPU of the same shim.
      NewRank made{rank.gpu, -1, 0, {gpu_of(rank.gpu), kUnit, kUnit * (1 + random() % 4), {}}};
      if (random() % 8 == 0) made.memory.gpu = "another";
      for (std::size_t i = 0; i < old_ranks.size(); ++i)
        if (old_ranks[i].gpu == rank.gpu && random() % 8 != 0)
          made.old_rank = static_cast<std::int32_t>(i);
      for (Entry entry : rank.entries) {
        memory(entry);
        its.push_back(std::move(entry));
      }
      if (random() % 4 == 0) {  // its program makes it
        Entry entry;
        entry.tensor = {"rng" + std::to_string(plan.to.size()),
                        -1,
                        Kind::rng,
                        DType::i64,
                        {pick(random, 1, 9)},
                        true};
        entry.part = Part::whole(entry.tensor.shape);
        memory(entry);
        its.push_back(std::move(entry));
      }
      made.table = plan.roster.add(its);
      plan.to.push_back(std::move(made));
    }
    from.emplace(old_world(plan).value());
    to.emplace(new_world(plan).value());
  }
  const Held& source_of(const Move& move) const {
    const auto& numbers = from->entries_of(move.from_rank);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i].tensor == move.from_tensor && numbers[i].part == move.from_part)
        return holds[move.from_rank][i];
    cr_assert(false, "no such source");
    std::abort();
  }
  Prepare plan;
  std::vector<std::vector<Held>> holds;     ///< by old rank
  std::vector<std::vector<Entry>> entries;  ///< by new rank
  std::optional<World> from, to;
  std::vector<ShimMemory> old;
};

}  // namespace slab_jobs
