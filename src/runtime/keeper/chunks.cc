// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/keeper/chunks.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <xxhash.h>

#include "core/count_of.h"
#include "runtime/plan/chunk_steps.h"
#include "runtime/state/slabs.h"

namespace swell::runtime {

namespace {

/// A switch in more chunks would take longer than a restart.
constexpr std::uint32_t kMaxChunks = 4096;

/// Decides in which chunk each step comes, and what is released before each chunk.
class Chunker {
 public:
  Chunker(ChunkSteps steps, std::uint64_t bound, Chunks& made)
      : steps_(std::move(steps)), bound_(bound), made_(made) {
    chunk_of_.assign(steps_.first_move.back(), 0);
    for (const Source& source : steps_.sources)
      for (const Step& step : source.queue) chunk_of_[step.number] = kNone;
    has_slabs_ = std::any_of(steps_.pools.begin(), steps_.pools.end(),
                             [](const Pool& pool) { return pool.is_in_slabs; });
  }

  Result<void> run() {
    at_.resize(steps_.sources.size());
    made_.releases.assign(steps_.sources.size(), {});
    for (std::size_t rank = 0; rank < steps_.sources.size(); ++rank) {
      const std::vector<std::uint32_t>& needed = steps_.sources[rank].needed;
      for (std::size_t s = 0; s < needed.size(); ++s)
        if (needed[s] == 0) unneeded_.push_back(s);
      release(rank);
    }
    for (std::size_t left = steps_.count; left > 0;) {
      if (made_.count == kMaxChunks)
        return Error(fmt::format("more than {} would be needed", count_of(kMaxChunks, "chunk")));
      const std::size_t chosen = choose();
      if (chosen == 0) return too_small();
      left -= chosen;
      ++made_.count;
      if (left > 0)
        for (std::size_t rank = 0; rank < steps_.sources.size(); ++rank) finish(rank);
    }
    for (const auto& [host, gpu] : steps_.pools_of) {
      made_.extra_bytes.push_back(std::max(extra_of(host), extra_of(gpu)));
      if (made_.extra_bytes.back() > bound_) return too_small();
    }
    return {};
  }
  /// Returns the chunk of each move, by the number of the move.
  const std::vector<std::uint32_t>& chunk_of() const noexcept { return chunk_of_; }
  /// Returns the number of a new rank's first move.
  std::uint32_t first_move(std::size_t rank) const noexcept { return steps_.first_move[rank]; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::uint64_t extra_of(std::uint32_t pool) const {
    const Pool& its = steps_.pools[pool];
    return its.peak - std::min(its.peak, its.larger);
  }

  Error too_small() const {
    return Error(fmt::format("a bound of {} bytes is too small for chunks", bound_));
  }

  /// Chooses the moves of the next chunk: the next ones of each source, as long as memory allows.
  /// Returns their number.
  std::size_t choose() {
    std::size_t chosen = 0;
    for (At& at : at_) at.chosen_begin = at.chosen_end = at.next;
    for (bool some = true; some;) {
      some = false;
      for (std::size_t rank = 0; rank < at_.size(); ++rank) {
        At& at = at_[rank];
        const std::vector<Step>& queue = steps_.sources[rank].queue;
        while (at.next < queue.size() && chunk_of_[queue[at.next].number] != kNone) ++at.next;
        if (at.next == queue.size() || !take(queue[at.next])) continue;
        at.chosen_end = ++at.next;
        ++chosen;
        some = true;
      }
    }
    if (has_slabs_) chosen += choose_in_slabs();
    if (chosen > 0) return chosen;
    // The next moves do not fit. Take one that fits from each source.
    for (std::size_t rank = 0; rank < at_.size(); ++rank) {
      At& at = at_[rank];
      const std::vector<Step>& queue = steps_.sources[rank].queue;
      for (std::size_t i = at.next; i < queue.size(); ++i)
        if (chunk_of_[queue[i].number] == kNone && take(queue[i])) {
          at.chosen_begin = i;
          at.chosen_end = i + 1;
          ++chosen;
          break;
        }
    }
    return chosen;
  }

  /// Does the same for steps into slabs, also behind steps that do not fit: a slab is allocated for
  /// its first incoming byte, and released after its last byte is read. Returns their number.
  std::size_t choose_in_slabs() {
    std::size_t chosen = 0;
    // Two turns: a shim that was asked first may have more moves into slabs that others began.
    for (int turn = 0; turn < 2; ++turn)
      for (std::size_t rank = 0; rank < at_.size(); ++rank) {
        At& at = at_[rank];
        const std::vector<Step>& queue = steps_.sources[rank].queue;
        for (std::size_t i = at.next; i < queue.size(); ++i) {
          const Step& step = queue[i];
          if (chunk_of_[step.number] != kNone || !steps_.pools[step.target].is_in_slabs ||
              !take(step))
            continue;
          at.chosen_end = std::max(at.chosen_end, i + 1);
          ++chosen;
        }
      }
    return chosen;
  }

  /// Takes memory for the destination of a move. Returns false if it does not fit.
  bool take(const Step& step) {
    Pool& target = steps_.pools[step.target];
    std::uint64_t bytes = 0;
    for (std::size_t s = step.to_begin; s < step.to_end; ++s) bytes += steps_.room[s];
    if (bytes > 0 && target.live + bytes > target.larger + bound_) return false;
    for (std::size_t s = step.to_begin; s < step.to_end; ++s) steps_.room[s] = 0;
    target.live += bytes;
    target.peak = std::max(target.peak, target.live);
    chunk_of_[step.number] = made_.count;
    return true;
  }

  /// Marks the memory of an old rank that is not needed after a chunk.
  void finish(std::size_t rank) {
    Source& source = steps_.sources[rank];
    for (std::size_t i = at_[rank].chosen_begin; i < at_[rank].chosen_end; ++i) {
      const Step& step = source.queue[i];
      if (chunk_of_[step.number] + 1 != made_.count) continue;
      for (std::uint64_t s = step.begin; s < step.end; ++s)
        if (--source.needed[s] == 0) unneeded_.push_back(s);
    }
    std::sort(unneeded_.begin(), unneeded_.end());
    release(rank);
  }

  /// Releases unneeded memory before the next chunk.
  void release(std::size_t rank) {
    const Source& source = steps_.sources[rank];
    std::vector<Release>& list = made_.releases[rank];
    for (const std::uint64_t s : unneeded_) {
      if (!source.is_held[s]) continue;
      const std::uint64_t at = source.cuts[s], bytes = source.cuts[s + 1] - at;
      steps_.pools[source.pools.empty() ? rank : source.pools[s]].live -= bytes;
      if ((at & kOnGpu) != 0) list.push_back({made_.count, 0, 0, DevicePlace::slab(at & ~kOnGpu)});
      else if (!list.empty() && list.back().chunk == made_.count &&
               list.back().at + list.back().bytes == at)
        list.back().bytes += bytes;
      else list.push_back({made_.count, at, bytes});
    }
    unneeded_.clear();
  }

  /// Progress in a source's queue.
  struct At {
    std::size_t next = 0;  ///< all steps before it are done
    /// The range that has the steps of the last chunk.
    std::size_t chosen_begin = 0, chosen_end = 0;
  };
  ChunkSteps steps_;
  const std::uint64_t bound_;
  Chunks& made_;
  bool has_slabs_ = false;
  std::vector<At> at_;                   ///< by old rank
  std::vector<std::uint32_t> chunk_of_;  ///< by move; kNone: not done yet
  std::vector<std::uint64_t> unneeded_;  ///< unneeded segments of the current old rank
};

std::uint64_t digest_of(const Chunks& chunks, const std::vector<std::uint32_t>& chunk_of,
                        std::uint64_t migration) {
  std::vector<std::uint64_t> values{migration, chunks.count};
  values.insert(values.end(), chunk_of.begin(), chunk_of.end());
  for (const auto& releases : chunks.releases) {
    values.push_back(releases.size());
    for (const Release& each : releases)
      values.insert(values.end(), {each.chunk, each.at, each.bytes, each.slab});
  }
  return XXH3_64bits(values.data(), values.size() * sizeof values[0]);
}

}  // namespace

Result<Chunks> plan_chunks(const Prepare& plan, const World& from, const World& to,
                           const cluster::Cluster& cluster, const MigrationOptions& options,
                           std::uint64_t page) {
  std::optional<Error> why;
  std::int64_t last_max = -1;
  // Smaller moves fit better. The gaps between the runs of a move count as memory too.
  for (const std::uint64_t share : {4, 16, 64, 256}) {
    MigrationOptions its = options;
    its.max_move_bytes =
        std::min(its.max_move_bytes,
                 static_cast<std::int64_t>(std::max(page, plan.max_extra_bytes / share)));
    if (its.max_move_bytes == last_max) continue;
    last_max = its.max_move_bytes;
    const auto migration = plan_migration(from, to, cluster, std::move(its));
    if (!migration) return migration.error();
    auto steps = make_steps(plan, from, to, *migration, page);
    if (!steps) return steps.error();
    Chunks made;
    Chunker chunker(std::move(*steps), plan.max_extra_bytes, made);
    if (auto good = chunker.run(); !good) {
      why = good.error();
      continue;
    }
    made.digest = digest_of(made, chunker.chunk_of(), migration->digest());
    if (plan.old_rank < 0 && plan.new_rank < 0) made.moves = migration->needs();
    else made.moves.resize(plan.to.size());
    if (plan.new_rank >= 0) {
      const auto rank = static_cast<std::uint32_t>(plan.new_rank);
      made.moves[rank] = migration->needs_of(rank);
    }
    for (std::size_t rank = 0; rank < made.moves.size(); ++rank) {
      std::uint32_t number = chunker.first_move(rank);
      for (Move& move : made.moves[rank]) move.chunk = chunker.chunk_of()[number++];
    }
    return made;
  }
  return *why;
}

}  // namespace swell::runtime
