// SPDX-License-Identifier: BSD-3-Clause
// Every rank computes the steps of all ranks' tensors, millions of them, so nothing is looked up by
// name.
#include "runtime/plan/chunk_steps.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "runtime/plan/chunk_cuts.h"
#include "runtime/plan/chunk_layout.h"
#include "runtime/plan/sort_runs.h"
#include "runtime/state/slabs.h"

namespace swell::runtime {

namespace {

/// State of one make_steps().
class Maker {
 public:
  Maker(const Prepare& plan, const World& from, const World& to, const Migration& migration,
        std::uint64_t page)
      : plan_(plan), from_(from), to_(to), migration_(migration), page_(page) {}

  Result<ChunkSteps> run() {
    if (plan_.from.size() != from_.ranks().size() || plan_.to.size() != to_.ranks().size())
      return Error("the worlds are not those of the plan");
    made_.sources.resize(plan_.from.size());
    made_.pools.resize(plan_.from.size());
    kept_.resize(plan_.from.size());
    if (auto good = note_places(); !good) return good.error();
    note_layouts();
    for (std::uint32_t rank = 0; rank < plan_.to.size(); ++rank)
      if (auto good = take_rank(rank); !good) return good.error();
    made_.first_move.push_back(moves_);
    old_.assign(made_.pools.size(), 0);
    for (std::uint32_t rank = 0; rank < plan_.from.size(); ++rank) take_source(rank);
    for (std::size_t i = 0; i < made_.pools.size(); ++i) {
      Pool& its = made_.pools[i];
      its.live += old_[i];
      its.larger = std::max(its.larger, old_[i]);
      its.peak = its.live;
    }
    return std::move(made_);
  }

 private:
  static constexpr std::uint64_t kElsewhere = UINT64_MAX;    ///< memory that no bound counts
  static constexpr std::uint64_t kNowhere = UINT64_MAX - 1;  ///< the old rank does not hold it

  Stretch pages(std::uint64_t at, std::uint64_t bytes) const {
    const Stretch made{at / page_ * page_, (at + bytes + page_ - 1) / page_ * page_};
    return made.begin < made.end ? made : Stretch();
  }
  Stretch pages(std::uint64_t at, Extent extent) const {
    return pages(at + static_cast<std::uint64_t>(extent.begin),
                 static_cast<std::uint64_t>(extent.end - extent.begin));
  }
  static std::uint64_t place_of(const Row& row) {
    if (row.memory == Memory::arena) return row.at;
    return row.memory == Memory::device ? kOnGpu | row.at : kElsewhere;
  }
  static Stretch slab_pages(std::uint64_t slab, std::uint64_t bytes) {
    const std::uint64_t at = kOnGpu | DevicePlace::of(slab, 0);
    return {at, at + bytes};
  }

  /// Returns the slab of an old rank that contains a place; nullptr if none does.
  const SlabOf* slab_of(std::uint32_t rank, std::uint64_t place) const {
    const auto& slabs = plan_.from[rank].memory.slabs;
    const std::uint64_t number = DevicePlace::slab(place & ~kOnGpu);
    const auto at =
        std::lower_bound(slabs.begin(), slabs.end(), number,
                         [](const SlabOf& slab, std::uint64_t one) { return slab.slab < one; });
    return at != slabs.end() && at->slab == number ? &*at : nullptr;
  }
  bool is_place(std::uint32_t rank, const Row& held, std::uint64_t place) const {
    if (held.memory == Memory::arena) return place < kOnGpu;
    const SlabOf* slab = held.memory == Memory::device ? slab_of(rank, place) : nullptr;
    return is_own(held.memory) ||
           (slab != nullptr &&
            DevicePlace::offset(held.at) + plan_.roster.bytes_of(held) <= slab->bytes);
  }
  /// Returns the pages of an old rank's memory that are read, or the whole slab that has them.
  Stretch old_pages(std::uint32_t rank, std::uint64_t place, Extent extent) const {
    if (place >= kNowhere) return {};
    if ((place & kOnGpu) == 0) return pages(place, extent);
    return slab_pages(DevicePlace::slab(place & ~kOnGpu), slab_of(rank, place)->bytes);
  }
  std::uint32_t pool_of(std::uint32_t shim, const std::string& gpu) {
    auto& its = gpu_pools_[shim];  // usually only one
    for (const auto& [name, pool] : its)
      if (name == gpu) return pool;
    its.emplace_back(gpu, made_.pools.size());
    made_.pools.emplace_back().is_in_slabs = true;
    return its.back().second;
  }

  /// Notes what each old rank holds, and at which address.
  Result<void> note_places() {
    at_.assign(old_holdings_.count(), kNowhere);
    for (std::uint32_t rank = 0; rank < plan_.from.size(); ++rank) {
      for (const SlabOf& slab : plan_.from[rank].memory.slabs) pool_of(rank, slab.gpu);
      const auto& entries = from_.entries_of(rank);
      const std::vector<Row>& holds = plan_.roster.rows(plan_.from[rank].table);
      for (std::size_t i = 0; i < std::min(entries.size(), holds.size()); ++i) {
        const std::uint64_t place = place_of(holds[i]);
        if (!is_place(rank, holds[i], place))
          return Error(fmt::format("tensor {}: old rank {} has no such memory",
                                   plan_.roster.tensors()[holds[i].tensor].name, rank));
        at_[old_holdings_.first_of(entries[i].tensor) +
            old_holdings_.index_of(entries[i].tensor, {rank, entries[i].part})] = place;
      }
    }
    return {};
  }

  void note_layouts() {
    layouts_.resize(migration_.reshards().size());
    pair_of_.assign(to_.tensors().size(), nullptr);
    for (const Migration::Pair& pair : migration_.pairs()) {
      pair_of_[pair.tensor] = &pair;
      Layout& its = layouts_[pair.reshard];
      const World::Tensor& tensor = to_.tensors()[pair.tensor];
      if (its.needs.empty())
        its = layout_of(migration_.reshards()[pair.reshard], from_,
                        from_.distribution_of(from_.tensors()[pair.from_tensor]), to_,
                        to_.distribution_of(tensor), bytes_of(tensor.info.dtype));
    }
  }

  /// Moves that fill one entry of a new rank.
  struct Coming {
    std::size_t holding = 0;
    Layout::Range needs;       ///< empty: nothing is moved
    std::uint32_t number = 0;  ///< number of the first move
    bool is_alias = false;     ///< the tensor for which it stands was placed already
  };

  /// Numbers the moves of a rank in the order of Migration::needs().
  void note_coming(std::uint32_t rank) {
    made_.first_move.push_back(moves_);
    coming_.clear();
    by_holding_.clear();
    for (const Numbered& entry : to_.entries_of(rank)) {
      const std::size_t index = new_holdings_.index_of(entry.tensor, {rank, entry.part});
      Coming its{new_holdings_.first_of(entry.tensor) + index, {}, 0, false};
      if (const Migration::Pair* pair = pair_of_[entry.tensor])
        its.needs = layouts_[pair->reshard].needs[index];
      if (its.needs.count > 0) {
        its.is_alias = is_placed_[its.holding];
        is_placed_[its.holding] = true;
      }
      if (its.needs.count > 0 && !its.is_alias)
        by_holding_.emplace_back(its.holding, coming_.size());
      coming_.push_back(its);
    }
    sort_runs(by_holding_, spare_holdings_, std::less<>());
    for (const auto& [holding, i] : by_holding_) {
      coming_[i].number = moves_;
      moves_ += coming_[i].needs.count;
    }
  }

  /// Notes where the tensors of a new rank will stand, and which moves fill them.
  Result<void> take_rank(std::uint32_t rank) {
    note_coming(rank);
    const std::vector<Row>& rows = plan_.roster.rows(plan_.to[rank].table);
    const std::int32_t old_rank = plan_.to[rank].old_rank;
    if (old_rank < 0) made_.pools.emplace_back();
    const auto shim = static_cast<std::uint32_t>(old_rank < 0 ? made_.pools.size() - 1 : old_rank);
    const GpuMemory& gpu = plan_.to[rank].memory;
    made_.pools_of.emplace_back(shim, gpu.gpu.empty() ? shim : pool_of(shim, gpu.gpu));
    next_ = 0;
    fresh_slabs_.clear();
    steps_.clear();
    for (std::size_t i = 0; i < coming_.size(); ++i) {
      const Row& row = rows[i];
      const Memory memory = row.memory;
      const std::uint64_t bytes = plan_.roster.bytes_of(row);
      if (coming_[i].is_alias) continue;
      if (memory == Memory::device && gpu.gpu.empty())
        return Error(fmt::format("tensor {}: the program of new rank {} has no GPU",
                                 plan_.roster.tensors()[row.tensor].name, rank));
      const Layout::Range needs = coming_[i].needs;
      const Migration::Pair* pair = pair_of_[to_.entries_of(rank)[i].tensor];
      if (needs.count > 0 && !is_own(memory) && old_rank >= 0 &&
          stays(*pair, needs.first, shim, memory, rank, bytes))
        continue;
      const std::uint64_t base = take_fresh(memory, bytes, gpu);
      for (std::uint32_t n = 0; n < needs.count; ++n)
        if (!add_step(*pair, needs.first + n, coming_[i].number + n, base))
          return Error(fmt::format("tensor {}: its source, rank {}, does not hold it",
                                   plan_.roster.tensors()[row.tensor].name,
                                   source_of(*pair, needs.first + n).candidate.rank));
    }
    take_room(made_.pools_of.back(), gpu.granularity);
    return {};
  }

  /// Returns a place in the current rank's new memory; on a GPU, the one that Slabs::take() would
  /// give.
  std::uint64_t take_fresh(Memory memory, std::uint64_t bytes, const GpuMemory& gpu) {
    if (is_own(memory)) return kElsewhere;
    const Stretch its = pages(0, bytes);
    if (memory == Memory::arena) {
      const std::uint64_t at = std::exchange(next_, next_ + its.end);
      cutter_.cut({at, next_});  // also for new tensors, and for padding alone
      return at;
    }
    if (fresh_slabs_.empty() || !fits_in_slab(fresh_slabs_.back(), its.end,
                                              slab_bytes_in_chunks(gpu, plan_.max_extra_bytes)))
      fresh_slabs_.push_back(0);
    const std::uint64_t at = DevicePlace::of(fresh_slabs_.size(), fresh_slabs_.back());
    fresh_slabs_.back() += its.end;
    return kOnGpu | at;
  }

  struct Found {
    const Candidate& candidate;
    Extent extent;
    std::uint64_t at;
  };
  Found source_of(const Migration::Pair& pair, std::uint32_t need) const {
    const ReshardPlan& reshard = migration_.reshards()[pair.reshard];
    const std::uint32_t c = migration_.source_of(pair, reshard.needs[need]);
    const Layout& layout = layouts_[pair.reshard];
    return {reshard.candidates[c], layout.from[c],
            at_[old_holdings_.first_of(pair.from_tensor) + layout.from_index[c]]};
  }

  /// Returns whether a run of the old memory becomes the new part, and notes it in that case.
  bool stays(const Migration::Pair& pair, std::uint32_t need, std::uint32_t shim, Memory memory,
             std::uint32_t rank, std::uint64_t bytes) {
    const Found source = source_of(pair, need);
    const bool on_gpu = memory == Memory::device;
    if (source.at >= kNowhere || source.candidate.nearness != Nearness::in_place ||
        source.candidate.rank != shim || ((source.at & kOnGpu) != 0) != on_gpu ||
        (on_gpu && slab_of(shim, source.at)->gpu != plan_.to[rank].memory.gpu))
      return false;
    const std::int64_t shift = source.extent.begin - layouts_[pair.reshard].to[need].begin;
    kept_[shim].push_back(
        old_pages(shim, source.at, {shift, shift + static_cast<std::int64_t>(bytes)}));
    return true;
  }

  /// Notes one move to a part that will stand at `base`. Returns false if its source does not hold
  /// the block.
  bool add_step(const Migration::Pair& pair, std::uint32_t need, std::uint32_t number,
                std::uint64_t base) {
    const Found source = source_of(pair, need);
    if (source.at == kNowhere) return false;
    const Stretch from = old_pages(source.candidate.rank, source.at, source.extent);
    Stretch to;
    if ((base & kOnGpu) == 0) to = pages(base, layouts_[pair.reshard].to[need]);
    else if (base != kElsewhere) to = slab_pages(DevicePlace::slab(base & ~kOnGpu), 1);
    if ((base & kOnGpu) == 0) cutter_.cut(to);
    steps_.push_back({{from.begin, from.end, 0, 0, 0, number}, source.candidate.rank, to});
    return true;
  }

  /// Cuts the new memory of the current rank: the arena, then whole slabs.
  void seal(std::uint64_t granularity) {
    for (std::size_t i = 0; i < fresh_slabs_.size(); ++i) {
      std::uint64_t& bytes = fresh_slabs_[i];
      bytes = (bytes + granularity - 1) / granularity * granularity;
      cutter_.cut(slab_pages(i + 1, bytes));
    }
    for (New& one : steps_)
      if ((one.to.begin & kOnGpu) != 0)
        one.to.end = one.to.begin + fresh_slabs_[DevicePlace::slab(one.to.begin & ~kOnGpu) - 1];
    cuts_.clear();
    cutter_.seal(cuts_);
  }

  /// Counts a new rank's memory, and puts its steps into their sources' queues.
  void take_room(std::pair<std::uint32_t, std::uint32_t> pools, std::uint64_t granularity) {
    const std::size_t first = made_.room.size();
    seal(granularity);
    made_.room.resize(first + cuts_.size());
    // Between the arena and the first slab, and after each slab, there is a gap.
    const auto bytes = [&](std::size_t i) {
      const bool is_gap = (cuts_[i] & kOnGpu) != 0 ? DevicePlace::offset(cuts_[i]) != 0
                                                   : (cuts_[i + 1] & kOnGpu) != 0;
      return is_gap ? 0 : cuts_[i + 1] - cuts_[i];
    };
    Finder find(cuts_);
    for (New& one : steps_) {
      one.step.target = (one.to.begin & kOnGpu) != 0 ? pools.second : pools.first;
      if (one.to.begin != one.to.end) {
        const std::size_t begin = find(one.to.begin), end = find(one.to.end);
        one.step.to_begin = static_cast<std::uint32_t>(first + begin);
        one.step.to_end = static_cast<std::uint32_t>(first + end);
        for (std::size_t i = begin; i < end; ++i) made_.room[first + i] = bytes(i);
      }
      made_.sources[one.source].queue.push_back(one.step);
    }
    made_.count += steps_.size();
    // Segments that receive nothing, such as padding, are live from the beginning.
    for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
      Pool& its = made_.pools[(cuts_[i] & kOnGpu) != 0 ? pools.second : pools.first];
      its.larger += bytes(i);
      if (made_.room[first + i] == 0) its.live += bytes(i);
    }
  }

  /// Cuts an old rank's memory, and counts how often each segment is read.
  void take_source(std::uint32_t rank) {
    Source& its = made_.sources[rank];
    // In order of addresses, so that memory is released in few pieces, and replicas stay in step.
    sort_runs(its.queue, spare_steps_,
              [](const Step& a, const Step& b) { return a.begin < b.begin; });
    for (const Step& step : its.queue) cutter_.cut({step.begin, step.end});
    std::vector<Stretch> held;
    for (const Row& one : plan_.roster.rows(plan_.from[rank].table))
      held.push_back(old_pages(rank, place_of(one),
                               {0, static_cast<std::int64_t>(plan_.roster.bytes_of(one))}));
    for (const Stretch& one : held) cutter_.cut(one);
    for (const Stretch& one : kept_[rank]) cutter_.cut(one);
    cutter_.seal(its.cuts);
    const std::size_t count = its.cuts.empty() ? 0 : its.cuts.size() - 1;
    its.needed.assign(count, 0);
    its.is_held.assign(count, false);
    auto each = [find = Finder(its.cuts)](Stretch one, auto&& visit) mutable {
      if (one.begin == one.end) return std::pair<std::size_t, std::size_t>();
      const std::size_t begin = find(one.begin), end = find(one.end);
      for (std::size_t i = begin; i < end; ++i) visit(i);
      return std::pair(begin, end);
    };
    for (Step& step : its.queue)
      std::tie(step.begin, step.end) =
          each({step.begin, step.end}, [&](std::size_t i) { ++its.needed[i]; });
    note_pools(rank);
    const auto pool = [&](std::size_t i) { return its.pools.empty() ? rank : its.pools[i]; };
    for (const Stretch& one : held)
      each(one, [&](std::size_t i) {
        if (!its.is_held[i]) old_[pool(i)] += its.cuts[i + 1] - its.cuts[i];
        its.is_held[i] = true;
      });
    std::vector<bool> is_kept(count, false);
    for (const Stretch& one : kept_[rank])
      each(one, [&](std::size_t i) {
        if (is_kept[i]) return;
        is_kept[i] = true;
        ++its.needed[i];
        made_.pools[pool(i)].larger += its.cuts[i + 1] - its.cuts[i];
      });
  }

  /// Notes which GPU has each slab of an old rank.
  void note_pools(std::uint32_t rank) {
    Source& its = made_.sources[rank];
    if (its.cuts.empty() || (its.cuts.back() & kOnGpu) == 0) return;
    its.pools.assign(its.cuts.size() - 1, rank);
    for (std::size_t i = 0; i < its.pools.size(); ++i)
      if ((its.cuts[i] & kOnGpu) != 0 && DevicePlace::offset(its.cuts[i]) == 0)
        its.pools[i] = pool_of(rank, slab_of(rank, its.cuts[i])->gpu);
  }

  const Prepare& plan_;
  const World &from_, &to_;
  const Migration& migration_;
  const std::uint64_t page_;
  Holdings old_holdings_{from_}, new_holdings_{to_};
  std::vector<std::uint64_t> at_;                ///< by old holding
  std::vector<const Migration::Pair*> pair_of_;  ///< by new tensor
  std::vector<Layout> layouts_;                  ///< by reshard plan
  std::vector<bool> is_placed_ = std::vector<bool>(new_holdings_.count());
  std::vector<std::vector<Stretch>> kept_;  ///< by old rank
  /// By the pool of a shim's host memory: the pools of its GPUs.
  std::unordered_map<std::uint32_t, std::vector<std::pair<std::string, std::uint32_t>>> gpu_pools_;
  std::vector<std::uint64_t> old_;  ///< by pool: bytes of the old state
  std::uint32_t moves_ = 0;
  ChunkSteps made_;

  // Scratch for one new rank; its memory is reused for the next one.
  struct New {
    Step step;
    std::uint32_t source;
    Stretch to;
  };
  std::vector<Coming> coming_;  ///< by entry
  std::vector<std::pair<std::size_t, std::size_t>> by_holding_, spare_holdings_;
  std::vector<New> steps_;
  std::uint64_t next_ = 0;                  ///< end of the new arena memory
  std::vector<std::uint64_t> fresh_slabs_;  ///< bytes of each new slab
  std::vector<Step> spare_steps_;
  Cutter cutter_;
  std::vector<std::uint64_t> cuts_;
};

}  // namespace

Result<ChunkSteps> make_steps(const Prepare& plan, const World& from, const World& to,
                              const Migration& migration, std::uint64_t page) {
  return Maker(plan, from, to, migration, page).run();
}

}  // namespace swell::runtime
