// SPDX-License-Identifier: BSD-3-Clause
// Every rank makes this of all ranks' tensors, millions of them: nothing is looked up by name.
#include "runtime/chunk_steps.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>
#include <tuple>

#include "runtime/chunk_layout.h"
#include "runtime/sort_runs.h"

namespace swell::runtime {

namespace {

/// Whole pages one after the other; empty: not in an arena.
struct Pages {
  std::uint64_t begin = 0, end = 0;
};

/// Addresses of one shim, cut wherever pages begin or end.
class Cutter {
 public:
  void cut(Pages pages) {
    if (pages.begin == pages.end) return;
    if (begins_.empty() || begins_.back() != pages.begin) begins_.push_back(pages.begin);
    if (ends_.empty() || ends_.back() != pages.end) ends_.push_back(pages.end);
  }
  /// Appends all cuts in order to `cuts`; none are left.
  void seal(std::vector<std::uint64_t>& cuts) {
    begins_.insert(begins_.end(), ends_.begin(), ends_.end());
    sort_runs(begins_, spare_, std::less<>());
    cuts.insert(cuts.end(), begins_.begin(), std::unique(begins_.begin(), begins_.end()));
    begins_.clear();
    ends_.clear();
  }

 private:
  std::vector<std::uint64_t> begins_, ends_, spare_;
};

/// Finds segments by address; quick where addresses rise.
class Finder {
 public:
  explicit Finder(std::span<const std::uint64_t> cuts) : cuts_(cuts) {}
  /// REQUIRES: it is cut there.
  std::size_t operator()(std::uint64_t at) {
    for (std::size_t i = last_; i < std::min(last_ + 3, cuts_.size()); ++i)
      if (cuts_[i] == at) return last_ = i;
    return last_ = static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), at) -
                                            cuts_.begin());
  }

 private:
  std::span<const std::uint64_t> cuts_;
  std::size_t last_ = 0;
};

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
    made_.shims.resize(plan_.from.size());
    kept_.resize(plan_.from.size());
    note_places();
    note_layouts();
    for (std::uint32_t rank = 0; rank < plan_.to.size(); ++rank)
      if (auto good = take_rank(rank); !good) return good.error();
    made_.first_move.push_back(moves_);
    for (std::size_t rank = 0; rank < plan_.from.size(); ++rank) take_source(rank);
    for (ShimBytes& its : made_.shims) its.peak = its.live;
    return std::move(made_);
  }

 private:
  static constexpr std::uint64_t kElsewhere = UINT64_MAX;    ///< not in an arena
  static constexpr std::uint64_t kNowhere = UINT64_MAX - 1;  ///< not held at all

  Pages pages(std::uint64_t at, std::uint64_t bytes) const {
    const Pages made{at / page_ * page_, (at + bytes + page_ - 1) / page_ * page_};
    return made.begin < made.end ? made : Pages();
  }
  Pages pages(std::uint64_t at, Extent extent) const {
    return pages(at + static_cast<std::uint64_t>(extent.begin),
                 static_cast<std::uint64_t>(extent.end - extent.begin));
  }

  /// Where old ranks hold what.
  void note_places() {
    at_.assign(old_holdings_.count(), kNowhere);
    for (std::uint32_t rank = 0; rank < plan_.from.size(); ++rank) {
      const auto& entries = from_.entries_of(rank);
      const std::vector<Row>& holds = plan_.roster.rows(plan_.from[rank].table);
      for (std::size_t i = 0; i < std::min(entries.size(), holds.size()); ++i)
        at_[old_holdings_.first_of(entries[i].tensor) +
            old_holdings_.index_of(entries[i].tensor, {rank, entries[i].part})] =
            holds[i].memory == Memory::arena ? holds[i].at : kElsewhere;
    }
  }

  void note_layouts() {
    layouts_.resize(migration_.recuts().size());
    pair_of_.assign(to_.tensors().size(), nullptr);
    for (const Migration::Pair& pair : migration_.pairs()) {
      pair_of_[pair.tensor] = &pair;
      Layout& its = layouts_[pair.recut];
      const World::Tensor& tensor = to_.tensors()[pair.tensor];
      if (its.needs.empty())
        its = layout_of(migration_.recuts()[pair.recut], from_,
                        from_.distribution_of(from_.tensors()[pair.from_tensor]), to_,
                        to_.distribution_of(tensor), bytes_of(tensor.info.dtype));
    }
  }

  /// What comes for one entry of a new rank.
  struct Coming {
    std::size_t holding = 0;
    Layout::Range needs;       ///< none: nothing does
    std::uint32_t number = 0;  ///< of the first move
    bool is_alias = false;     ///< what it stands for was placed already
  };

  /// Numbers the moves of a rank as Migration::needs() has them.
  void note_coming(std::uint32_t rank) {
    made_.first_move.push_back(moves_);
    coming_.clear();
    by_holding_.clear();
    for (const Numbered& entry : to_.entries_of(rank)) {
      const std::size_t index = new_holdings_.index_of(entry.tensor, {rank, entry.part});
      Coming its{new_holdings_.first_of(entry.tensor) + index, {}, 0, false};
      if (const Migration::Pair* pair = pair_of_[entry.tensor])
        its.needs = layouts_[pair->recut].needs[index];
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

  /// Notes where the tensors of a new rank will stand, and what comes there.
  Result<void> take_rank(std::uint32_t rank) {
    note_coming(rank);
    const std::vector<Row>& rows = plan_.roster.rows(plan_.to[rank].table);
    const std::int32_t old_rank = plan_.to[rank].old_rank;
    if (old_rank < 0) made_.shims.emplace_back();
    const auto shim = static_cast<std::uint32_t>(old_rank < 0 ? made_.shims.size() - 1 : old_rank);
    made_.shim_of.push_back(shim);
    std::uint64_t next = 0;
    steps_.clear();
    for (std::size_t i = 0; i < coming_.size(); ++i) {
      const Row& row = rows[i];
      const bool in_arena = row.memory == Memory::arena;
      const std::uint64_t bytes = plan_.roster.bytes_of(row);
      if (coming_[i].is_alias) continue;
      const Layout::Range needs = coming_[i].needs;
      const Migration::Pair* pair = pair_of_[to_.entries_of(rank)[i].tensor];
      if (needs.count > 0 && in_arena && old_rank >= 0 && stays(*pair, needs.first, shim, bytes))
        continue;
      const std::uint64_t base = next;
      for (std::uint32_t n = 0; n < needs.count; ++n)
        if (!add_step(*pair, needs.first + n, coming_[i].number + n, shim, base, in_arena))
          return Error(fmt::format("tensor {}: its source, rank {}, does not hold it",
                                   plan_.roster.tensors()[row.tensor].name,
                                   source_of(*pair, needs.first + n).candidate.rank));
      if (!in_arena) continue;
      const Pages place = pages(base, bytes);  // also of what is new, or padding alone
      cutter_.cut(place);
      next = place.end;
    }
    take_room(made_.shims[shim]);
    return {};
  }

  struct Found {
    const Candidate& candidate;
    Extent extent;
    std::uint64_t at;
  };
  Found source_of(const Migration::Pair& pair, std::uint32_t need) const {
    const Recut& recut = migration_.recuts()[pair.recut];
    const std::uint32_t c = migration_.source_of(pair, recut.needs[need]);
    const Layout& layout = layouts_[pair.recut];
    return {recut.candidates[c], layout.from[c],
            at_[old_holdings_.first_of(pair.from_tensor) + layout.from_index[c]]};
  }

  /// Whether a run of the old memory becomes the new part; if so it is noted.
  bool stays(const Migration::Pair& pair, std::uint32_t need, std::uint32_t shim,
             std::uint64_t bytes) {
    const Found source = source_of(pair, need);
    if (source.at >= kNowhere || source.candidate.nearness != Nearness::in_place ||
        source.candidate.rank != shim)
      return false;
    const std::int64_t shift = source.extent.begin - layouts_[pair.recut].to[need].begin;
    kept_[shim].push_back(pages(source.at + static_cast<std::uint64_t>(shift), bytes));
    return true;
  }

  /// Notes one move to a part that will stand at `base`; false: its source does not hold it.
  bool add_step(const Migration::Pair& pair, std::uint32_t need, std::uint32_t number,
                std::uint32_t shim, std::uint64_t base, bool in_arena) {
    const Found source = source_of(pair, need);
    if (source.at == kNowhere) return false;
    Pages from, to;
    if (source.at != kElsewhere) from = pages(source.at, source.extent);
    if (in_arena) to = pages(base, layouts_[pair.recut].to[need]);
    cutter_.cut(to);
    steps_.push_back({{from.begin, from.end, shim, 0, 0, number}, source.candidate.rank, to});
    return true;
  }

  /// Counts a new rank's memory, and puts its steps into their sources' queues.
  void take_room(ShimBytes& its) {
    const std::size_t first = made_.room.size();
    cuts_.clear();
    cutter_.seal(cuts_);
    made_.room.resize(first + cuts_.size());
    const auto bytes = [&](std::size_t i) { return cuts_[i + 1] - cuts_[i]; };
    Finder find(cuts_);
    for (New& one : steps_) {
      if (one.to.begin != one.to.end) {
        const std::size_t begin = find(one.to.begin), end = find(one.to.end);
        one.step.to_begin = static_cast<std::uint32_t>(first + begin);
        one.step.to_end = static_cast<std::uint32_t>(first + end);
        for (std::size_t i = begin; i < end; ++i) made_.room[first + i] = bytes(i);
      }
      made_.sources[one.source].queue.push_back(one.step);
    }
    made_.count += steps_.size();
    // What nothing comes to, as padding, is there from the beginning.
    for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
      its.larger += bytes(i);
      if (made_.room[first + i] == 0) its.live += bytes(i);
    }
  }

  /// Cuts an old rank's memory, and counts what is read of it.
  void take_source(std::size_t rank) {
    Source& its = made_.sources[rank];
    // From the lowest address on, so that what goes is in few pieces, and replicas keep together.
    sort_runs(its.queue, spare_steps_,
              [](const Step& a, const Step& b) { return a.begin < b.begin; });
    for (const Step& step : its.queue) cutter_.cut({step.begin, step.end});
    std::vector<Pages> held;
    for (const Row& one : plan_.roster.rows(plan_.from[rank].table))
      if (one.memory == Memory::arena) held.push_back(pages(one.at, plan_.roster.bytes_of(one)));
    for (const Pages& one : held) cutter_.cut(one);
    for (const Pages& one : kept_[rank]) cutter_.cut(one);
    cutter_.seal(its.cuts);
    const std::size_t count = its.cuts.empty() ? 0 : its.cuts.size() - 1;
    its.needed.assign(count, 0);
    its.is_held.assign(count, false);
    auto each = [find = Finder(its.cuts)](Pages one, auto&& visit) mutable {
      if (one.begin == one.end) return std::pair<std::size_t, std::size_t>();
      const std::size_t begin = find(one.begin), end = find(one.end);
      for (std::size_t i = begin; i < end; ++i) visit(i);
      return std::pair(begin, end);
    };
    for (Step& step : its.queue)
      std::tie(step.begin, step.end) =
          each({step.begin, step.end}, [&](std::size_t i) { ++its.needed[i]; });
    ShimBytes& shim = made_.shims[rank];
    std::uint64_t old = 0;
    for (const Pages& one : held)
      each(one, [&](std::size_t i) {
        if (!its.is_held[i]) old += its.cuts[i + 1] - its.cuts[i];
        its.is_held[i] = true;
      });
    std::vector<bool> is_kept(count, false);
    for (const Pages& one : kept_[rank])
      each(one, [&](std::size_t i) {
        if (is_kept[i]) return;
        is_kept[i] = true;
        ++its.needed[i];
        shim.larger += its.cuts[i + 1] - its.cuts[i];
      });
    shim.live += old;
    shim.larger = std::max(old, shim.larger);
  }

  const Prepare& plan_;
  const World &from_, &to_;
  const Migration& migration_;
  const std::uint64_t page_;
  Holdings old_holdings_{from_}, new_holdings_{to_};
  std::vector<std::uint64_t> at_;                ///< by old holding
  std::vector<const Migration::Pair*> pair_of_;  ///< by new tensor
  std::vector<Layout> layouts_;                  ///< by recut
  std::vector<bool> is_placed_ = std::vector<bool>(new_holdings_.count());
  std::vector<std::vector<Pages>> kept_;  ///< by old rank
  std::uint32_t moves_ = 0;
  ChunkSteps made_;

  // Of the rank that is taken; kept as memory for the next one.
  struct New {
    Step step;
    std::uint32_t source;
    Pages to;
  };
  std::vector<Coming> coming_;  ///< by entry
  std::vector<std::pair<std::size_t, std::size_t>> by_holding_, spare_holdings_;
  std::vector<New> steps_;
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
