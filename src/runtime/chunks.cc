// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/chunks.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <xxhash.h>

#include "runtime/placement.h"

namespace swell::runtime {

namespace {

/// More of them would take longer than a restart.
constexpr std::uint32_t kMaxChunks = 4096;

/// Whole pages one after the other.
struct Span {
  std::uint64_t begin = 0, end = 0;
  bool empty() const noexcept { return begin == end; }
};

/// Addresses of one shim, cut wherever a span begins or ends.
class Segments {
 public:
  void cut(Span span) {
    if (span.empty()) return;
    cuts_.push_back(span.begin);
    cuts_.push_back(span.end);
  }
  /// REQUIRES: all are cut.
  void seal() {
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  }
  std::size_t count() const noexcept { return cuts_.empty() ? 0 : cuts_.size() - 1; }
  std::uint64_t at(std::size_t i) const noexcept { return cuts_[i]; }
  std::uint64_t bytes(std::size_t i) const noexcept { return cuts_[i + 1] - cuts_[i]; }
  template <typename Each>
  void each(Span span, Each&& each) const {
    if (span.empty()) return;
    auto i = static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), span.begin) -
                                      cuts_.begin());
    for (; cuts_[i] < span.end; ++i) each(i);
  }

 private:
  std::vector<std::uint64_t> cuts_;
};

/// A move as far as memory is concerned.
struct Step {
  std::size_t source = 0, target = 0;  ///< shims
  Span from, to;                       ///< empty: not in an arena
  Move* move = nullptr;
  bool is_done = false;
};

/// What one shim holds while the chunks come.
struct Holds {
  // Of the old epoch, by offset in the arena.
  Segments old;
  std::vector<Span> held, kept;
  std::vector<std::uint32_t> needed;  ///< by segment: by how many moves, and once where it is kept
  std::vector<bool> is_held;
  // New memory, by an offset that counts from 0.
  Segments fresh;
  std::vector<Span> places;
  std::vector<bool> is_taken;

  std::uint64_t live = 0, larger = 0, peak = 0;
  std::vector<std::size_t>
      queue;  ///< moves that read of it, in the order in which they are to come
  std::size_t next = 0;
};

class Chunker {
 public:
  Chunker(const Prepare& plan, const World& from, const World& to, std::uint64_t page, Chunks& made)
      : plan_(plan), from_(from), to_(to), page_(page), made_(made), shims_(plan.from.size()) {}

  Result<void> run() {
    for (std::uint32_t rank = 0; rank < plan_.to.size(); ++rank)
      if (auto good = take_rank(rank); !good) return good;
    count_all();
    made_.releases.assign(plan_.from.size(), {});
    release(0);
    std::size_t left = steps_.size();
    std::vector<std::size_t> chosen;
    while (left > 0) {
      if (made_.count == kMaxChunks)
        return Error(fmt::format("more than {} chunks would be needed", kMaxChunks));
      chosen.clear();
      choose(chosen);
      if (chosen.empty()) return too_small();
      for (const std::size_t i : chosen) finish(steps_[i]);
      left -= chosen.size();
      ++made_.count;
      if (left > 0) release(made_.count);
    }
    for (std::size_t rank = 0; rank < plan_.to.size(); ++rank) {
      const Holds& its = shims_[shim_of_[rank]];
      made_.extra_bytes.push_back(its.peak - std::min(its.peak, its.larger));
      if (made_.extra_bytes.back() > plan_.max_extra_bytes) return too_small();
    }
    return {};
  }

 private:
  Error too_small() const {
    return Error(fmt::format("a bound of {} bytes is too small for chunks", plan_.max_extra_bytes));
  }
  Span pages(std::uint64_t at, std::uint64_t bytes) const {
    return {at / page_ * page_, (at + bytes + page_ - 1) / page_ * page_};
  }
  /// Pages of `box` and of what is between its runs, in a part that stands at `at`.
  Span pages_of(const Box& box, const Part& part, std::uint64_t at, std::int64_t element) const {
    std::array<std::int64_t, kMaxDims> last = box.end;
    for (std::size_t d = 0; d < static_cast<std::size_t>(box.dims); ++d) --last[d];
    const std::int64_t begin = offset_in(part, box.begin), end = offset_in(part, last) + 1;
    return pages(at + static_cast<std::uint64_t>(begin * element),
                 static_cast<std::uint64_t>((end - begin) * element));
  }

  /// Notes where the tensors of a new rank will stand, and what comes there.
  Result<void> take_rank(std::uint32_t rank) {
    const std::int32_t old_rank = plan_.to[rank].old_rank;
    if (old_rank < 0) shims_.emplace_back();
    shim_of_.push_back(old_rank < 0 ? shims_.size() - 1 : static_cast<std::size_t>(old_rank));
    Holds& its = shims_[shim_of_.back()];
    using Key = std::pair<const World::Tensor*, Part>;
    std::map<Key, std::vector<Move*>> by_part;
    for (Move& move : made_.moves[rank])
      by_part[{&to_.tensors()[move.tensor], to_.part(move.to_part)}].push_back(&move);
    std::uint64_t next = 0;
    for (const Entry& entry : plan_.to[rank].entries) {
      const auto found = by_part.find({to_.find(entry.tensor.name), entry.part});
      const bool in_arena = memory_of(entry) == Memory::arena;
      if (in_arena && found == by_part.end()) {  // new, or padding alone
        its.places.push_back(pages(next, entry_bytes(entry)));
        next = its.places.back().end;
      }
      if (found == by_part.end() || found->second.empty()) continue;  // an alias: placed already
      std::vector<Move*> moves = std::exchange(found->second, {});
      const std::int64_t element = bytes_of(entry.tensor.dtype);
      const Move& first = *moves.front();
      const Held* source = sources_.find(first);
      if (in_arena && source != nullptr && source->memory == Memory::arena &&
          first.nearness == Nearness::in_place &&
          static_cast<std::int32_t>(first.from_rank) == old_rank) {
        const std::int64_t shift =
            offset_in(source->entry.part, first.box.begin) - offset_in(entry.part, first.box.begin);
        its.kept.push_back(
            pages(source->at + static_cast<std::uint64_t>(shift * element), entry_bytes(entry)));
        continue;
      }
      const std::uint64_t base = next;
      if (in_arena) {
        its.places.push_back(pages(base, entry_bytes(entry)));
        next = its.places.back().end;
      }
      for (Move* move : moves) {
        source = sources_.find(*move);
        if (source == nullptr)
          return Error(fmt::format("tensor {}: its source, rank {}, does not hold it",
                                   entry.tensor.name, move->from_rank));
        Step step{move->from_rank, shim_of_.back(), {}, {}, move};
        if (source->memory == Memory::arena)
          step.from = pages_of(move->box, source->entry.part, source->at, element);
        if (in_arena) step.to = pages_of(move->box, entry.part, base, element);
        steps_.push_back(step);
      }
    }
    return {};
  }
  static std::uint64_t entry_bytes(const Entry& entry) {
    return static_cast<std::uint64_t>(entry.bytes());
  }

  /// What every shim holds before the first chunk, and what it may.
  void count_all() {
    for (std::size_t rank = 0; rank < plan_.from.size(); ++rank)
      for (const Held& held : plan_.from[rank].holds)
        if (held.memory == Memory::arena) shims_[rank].held.push_back(pages(held.at, held.bytes()));
    for (const Step& step : steps_) {
      shims_[step.source].old.cut(step.from);
      shims_[step.target].fresh.cut(step.to);
    }
    for (Holds& its : shims_) {
      for (const Span& span : its.held) its.old.cut(span);
      for (const Span& span : its.kept) its.old.cut(span);
      for (const Span& span : its.places) its.fresh.cut(span);
      its.old.seal();
      its.fresh.seal();
      its.needed.assign(its.old.count(), 0);
      its.is_held.assign(its.old.count(), false);
      its.is_taken.assign(its.fresh.count(), true);
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      Holds& source = shims_[steps_[i].source];
      Holds& target = shims_[steps_[i].target];
      source.queue.push_back(i);
      source.old.each(steps_[i].from, [&](std::size_t s) { ++source.needed[s]; });
      target.fresh.each(steps_[i].to, [&](std::size_t s) { target.is_taken[s] = false; });
    }
    for (Holds& its : shims_) {
      // From the lowest address on, so that what goes is in few pieces, and replicas keep together.
      std::stable_sort(its.queue.begin(), its.queue.end(), [this](std::size_t a, std::size_t b) {
        return steps_[a].from.begin < steps_[b].from.begin;
      });
      std::uint64_t old = 0, next = 0;
      for (const Span& span : its.held)
        its.old.each(span, [&](std::size_t s) {
          if (!its.is_held[s]) old += its.old.bytes(s);
          its.is_held[s] = true;
        });
      std::vector<bool> is_kept(its.old.count(), false);
      for (const Span& span : its.kept)
        its.old.each(span, [&](std::size_t s) {
          if (!is_kept[s]) next += its.old.bytes(s);
          if (!is_kept[s]) ++its.needed[s];
          is_kept[s] = true;
        });
      its.live = old;
      // What nothing comes to, as padding, is there from the beginning.
      for (std::size_t s = 0; s < its.fresh.count(); ++s) {
        next += its.fresh.bytes(s);
        if (its.is_taken[s]) its.live += its.fresh.bytes(s);
      }
      its.larger = std::max(old, next);
      its.peak = its.live;
    }
  }

  /// Moves that come with the next chunk: of each source the next ones, as long as there is room.
  void choose(std::vector<std::size_t>& chosen) {
    for (bool some = true; some;) {
      some = false;
      for (Holds& source : shims_) {
        while (source.next < source.queue.size() && steps_[source.queue[source.next]].is_done)
          ++source.next;
        if (source.next == source.queue.size() || !take(source.queue[source.next])) continue;
        chosen.push_back(source.queue[source.next]);
        some = true;
      }
    }
    if (!chosen.empty()) return;
    // Who is next has no room: one of each source that has.
    for (Holds& source : shims_)
      for (std::size_t i = source.next; i < source.queue.size(); ++i)
        if (!steps_[source.queue[i]].is_done && take(source.queue[i])) {
          chosen.push_back(source.queue[i]);
          break;
        }
  }

  /// Takes memory for what a move brings; false: there is no room.
  bool take(std::size_t number) {
    Step& step = steps_[number];
    Holds& target = shims_[step.target];
    std::uint64_t bytes = 0;
    target.fresh.each(step.to, [&](std::size_t s) {
      if (!target.is_taken[s]) bytes += target.fresh.bytes(s);
    });
    if (bytes > 0 && target.live + bytes > target.larger + plan_.max_extra_bytes) return false;
    target.fresh.each(step.to, [&](std::size_t s) { target.is_taken[s] = true; });
    target.live += bytes;
    target.peak = std::max(target.peak, target.live);
    step.is_done = true;
    step.move->chunk = made_.count;
    return true;
  }

  void finish(const Step& step) {
    Holds& source = shims_[step.source];
    source.old.each(step.from, [&](std::size_t s) {
      if (--source.needed[s] == 0) unneeded_.emplace_back(step.source, s);
    });
  }

  /// Lets go of what nobody needs any more, before `chunk`.
  void release(std::uint32_t chunk) {
    if (chunk == 0)
      for (std::size_t rank = 0; rank < plan_.from.size(); ++rank)
        for (std::size_t s = 0; s < shims_[rank].old.count(); ++s)
          if (shims_[rank].needed[s] == 0) unneeded_.emplace_back(rank, s);
    std::sort(unneeded_.begin(), unneeded_.end());
    for (const auto& [rank, s] : unneeded_) {
      Holds& its = shims_[rank];
      if (!its.is_held[s]) continue;
      its.live -= its.old.bytes(s);
      std::vector<Release>& list = made_.releases[rank];
      if (!list.empty() && list.back().chunk == chunk &&
          list.back().at + list.back().bytes == its.old.at(s))
        list.back().bytes += its.old.bytes(s);
      else list.push_back({chunk, its.old.at(s), its.old.bytes(s)});
    }
    unneeded_.clear();
  }

  const Prepare& plan_;
  const World &from_, &to_;
  const std::uint64_t page_;
  Chunks& made_;
  Sources sources_{plan_, from_};
  std::vector<Holds> shims_;          ///< of the old ranks, then of those that are new
  std::vector<std::size_t> shim_of_;  ///< by new rank
  std::vector<Step> steps_;
  std::vector<std::pair<std::size_t, std::size_t>> unneeded_;  ///< shim and segment
};

std::uint64_t digest_of(const Chunks& chunks, std::uint64_t migration) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  const auto feed = [&](std::uint64_t value) { XXH3_64bits_update(state, &value, sizeof value); };
  feed(migration);
  feed(chunks.count);
  for (const auto& moves : chunks.moves)
    for (const Move& move : moves) feed(move.chunk);
  for (const auto& releases : chunks.releases) {
    feed(releases.size());
    for (const Release& each : releases) {
      feed(each.chunk);
      feed(each.at);
      feed(each.bytes);
    }
  }
  const std::uint64_t digest = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return digest;
}

}  // namespace

Result<Chunks> plan_chunks(const Prepare& plan, const World& from, const World& to,
                           const cluster::Cluster& cluster, const MigrationOptions& options,
                           std::uint64_t page) {
  std::optional<Error> why;
  // The smaller the moves, the better they fit: what is between the runs of one counts, too.
  for (const std::uint64_t share : {4, 16, 64, 256}) {
    MigrationOptions its = options;
    its.max_move_bytes =
        std::min(its.max_move_bytes,
                 static_cast<std::int64_t>(std::max(page, plan.max_extra_bytes / share)));
    const auto migration = plan_migration(from, to, cluster, its);
    if (!migration) return migration.error();
    Chunks made;
    made.moves = migration->needs();
    if (auto good = Chunker(plan, from, to, page, made).run(); !good) {
      why = good.error();
      continue;
    }
    made.digest = digest_of(made, migration->digest());
    return made;
  }
  return *why;
}

}  // namespace swell::runtime
