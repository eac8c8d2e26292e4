// SPDX-License-Identifier: GPL-2.0-or-later
// Plans of switches in chunks of state that stands on GPUs, in slabs, beside state in arenas.
#include <algorithm>
#include <criterion/criterion.h>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/keeper/chunks.h"
#include "runtime/slab_job.h"
#include "support/random_cases.h"

using namespace slab_jobs;

namespace {

/// A new rank's part: in place, or in its new memory.
struct Place {
  const Entry* entry = nullptr;
  bool is_kept = false;
  std::uint64_t at = 0;
  std::vector<const Move*> moves;
};

/// All that a switch in chunks does, of a job of its own.
struct Carried {
  Carried(Job its, const Chunks& chunks) : job(std::move(its)), made(chunks) {
    for (std::size_t rank = 0; rank < job.plan.to.size(); ++rank) place(rank);
    for (std::size_t rank = 0; rank < job.plan.to.size(); ++rank) {
      const NewRank& its_rank = job.plan.to[rank];
      larger.push_back({new_host[rank], new_gpu[rank]});
      if (its_rank.old_rank < 0) continue;
      const ShimMemory& before = job.old[static_cast<std::size_t>(its_rank.old_rank)];
      larger[rank] = {std::max(larger[rank].first, before.on_host()),
                      std::max(larger[rank].second, before.on(its_rank.memory.gpu))};
    }
  }

  /// Gives each part of a rank its place, as place_all() does.
  void place(std::size_t rank) {
    const NewRank& its = job.plan.to[rank];
    GpuMemory where = its.memory;
    where.slab_bytes = slab_bytes_in_chunks(where, job.plan.max_extra_bytes);
    ShimMemory memory;
    std::set<std::uint64_t> pages, slabs;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Place> by_holding;
    for (std::size_t i = 0; i < job.entries[rank].size(); ++i) {
      const Entry& entry = job.entries[rank][i];
      const Numbered number = job.to->entries_of(rank)[i];
      if (by_holding.contains({number.tensor, number.part})) continue;
      Place place{&entry, false, 0, {}};
      for (const Move& move : made.moves[rank])
        if (move.tensor == number.tensor && move.to_part == number.part)
          place.moves.push_back(&move);
      const auto bytes = static_cast<std::uint64_t>(entry.bytes());
      place.is_kept = stays(its, place);
      if (place.is_kept) {
        const Held& source = job.source_of(*place.moves[0]);
        std::int64_t shift = 0;
        each_run(place.moves[0]->box, source.entry.part, entry.part,
                 [&](std::int64_t a, std::int64_t b, std::int64_t) { shift = a - b; });
        place.at = source.at + static_cast<std::uint64_t>(shift * bytes_of(entry.tensor.dtype));
        if (source.memory == Memory::device) slabs.insert(DevicePlace::slab(place.at));
        else
          for (auto page = place.at / kPage; page < rounded(place.at + bytes, kPage) / kPage;
               ++page)
            pages.insert(page);
      } else {
        place.at = memory.take(memory_of(entry), bytes, where);
        if (memory_of(entry) == Memory::arena) new_pages[rank] += rounded(bytes, kPage);
      }
      by_holding[{number.tensor, number.part}] = place;
      places[rank].push_back(place);
    }
    memory.seal();
    new_host[rank] = new_pages[rank] + kPage * pages.size();
    for (const auto& [number, slab] : memory.slabs) new_gpu[rank] += slab.bytes.size();
    take_rest(rank, memory);
    for (const std::uint64_t slab : slabs)
      new_gpu[rank] += job.old[static_cast<std::size_t>(its.old_rank)].slabs[slab].bytes.size();
    fresh.push_back(std::move(memory));
  }
  /// Takes memory that receives no data from the beginning: slabs, and pages of tensors.
  void take_rest(std::size_t rank, ShimMemory& memory) {
    std::set<std::uint64_t> slabs, pages;
    for (const Place& place : places[rank])
      for (const Move* move : place.moves) {
        if (place.is_kept) continue;
        const auto [at, bytes] = extent_of(place, *move);
        if (memory_of(*place.entry) == Memory::device) slabs.insert(DevicePlace::slab(at));
        else
          for (auto page = at / kPage; page < rounded(at + bytes, kPage) / kPage; ++page)
            pages.insert(page);
      }
    for (auto& [number, slab] : memory.slabs) slab.is_there = !slabs.contains(number);
    for (std::uint64_t page = 0; page < new_pages[rank] / kPage; ++page)
      if (!pages.contains(page)) memory.put(Memory::arena, page * kPage, kPage);
  }
  /// Where a move goes, with what is between its runs.
  std::pair<std::uint64_t, std::uint64_t> extent_of(const Place& place, const Move& move) const {
    const auto size = static_cast<std::uint64_t>(bytes_of(place.entry->tensor.dtype));
    std::uint64_t begin = UINT64_MAX, end = 0;
    each_run(move.box, job.source_of(move).entry.part, place.entry->part,
             [&](std::int64_t, std::int64_t b, std::int64_t n) {
               begin = std::min(begin, place.at + static_cast<std::uint64_t>(b) * size);
               end = std::max(end, place.at + static_cast<std::uint64_t>(b + n) * size);
             });
    return {begin, end - begin};
  }
  bool stays(const NewRank& its, const Place& place) const {
    if (place.moves.empty() || place.moves[0]->nearness != Nearness::in_place ||
        static_cast<std::int32_t>(place.moves[0]->from_rank) != its.old_rank)
      return false;
    const Held& source = job.source_of(*place.moves[0]);
    if (source.memory != memory_of(*place.entry)) return false;
    return source.memory == Memory::arena ||
           job.old[place.moves[0]->from_rank].slabs.at(DevicePlace::slab(source.at)).gpu ==
               its.memory.gpu;
  }

  template <typename Visit>
  void each_move(std::uint32_t chunk, Visit&& visit) {
    for (std::size_t rank = 0; rank < fresh.size(); ++rank)
      for (const Place& place : places[rank])
        for (const Move* move : place.moves)
          if (!place.is_kept && move->chunk == chunk) visit(rank, place, *move);
  }
  void release(std::uint32_t chunk) {
    for (std::size_t rank = 0; rank < job.old.size(); ++rank)
      for (const Release& each : made.releases[rank]) {
        if (each.chunk != chunk) continue;
        if (each.slab != 0) {
          SlabMemory& slab = job.old[rank].slabs.at(each.slab);
          cr_assert(slab.is_there, "it went twice");
          slab.is_there = false;
          continue;
        }
        for (std::uint64_t at = each.at; at < each.at + each.bytes; at += kPage)
          cr_assert_eq(job.old[rank].pages.erase(at / kPage), 1, "it went twice");
      }
  }
  /// Whether every shim is within what it was said to hold.
  void check_live() {
    for (std::size_t rank = 0; rank < fresh.size(); ++rank) {
      const std::string& gpu = job.plan.to[rank].memory.gpu;
      std::uint64_t host = fresh[rank].on_host(), on_gpu = fresh[rank].on(gpu);
      if (const std::int32_t old = job.plan.to[rank].old_rank; old >= 0) {
        host += job.old[static_cast<std::size_t>(old)].on_host();
        on_gpu += job.old[static_cast<std::size_t>(old)].on(gpu);
      }
      cr_assert_leq(host, larger[rank].first + made.extra_bytes[rank], "more than was said");
      cr_assert_leq(on_gpu, larger[rank].second + made.extra_bytes[rank], "more than was said");
    }
  }
  void fetch(const Place& place, std::size_t rank, const Move& move) {
    const Held& source = job.source_of(move);
    const auto size = static_cast<std::uint64_t>(bytes_of(place.entry->tensor.dtype));
    each_run(move.box, source.entry.part, place.entry->part,
             [&](std::int64_t a, std::int64_t b, std::int64_t n) {
               for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(n) * size; ++k)
                 fresh[rank].byte(memory_of(*place.entry),
                                  place.at + static_cast<std::uint64_t>(b) * size + k) =
                     job.old[move.from_rank].byte(
                         source.memory, source.at + static_cast<std::uint64_t>(a) * size + k);
             });
  }
  void run() {
    for (std::uint32_t chunk = 0; chunk < made.count; ++chunk) {
      release(chunk);
      each_move(chunk, [&](std::size_t rank, const Place& place, const Move& move) {
        const auto [at, bytes] = extent_of(place, move);
        fresh[rank].put(memory_of(*place.entry), at, bytes);
      });
      check_live();
      each_move(chunk, [&](std::size_t rank, const Place& place, const Move& move) {
        fetch(place, rank, move);
      });
    }
    for (std::size_t rank = 0; rank < fresh.size(); ++rank)
      for (const Place& place : places[rank])
        if (!place.entry->tensor.optional)
          support::each_known_byte(*place.entry, [&](std::uint64_t at, std::uint8_t value) {
            ShimMemory& memory = place.is_kept
                                     ? job.old[static_cast<std::size_t>(job.plan.to[rank].old_rank)]
                                     : fresh[rank];
            cr_assert_eq(memory.byte(memory_of(*place.entry), place.at + at), value,
                         "rank %zu, tensor %s", rank, place.entry->tensor.name.c_str());
          });
  }

  Job job;
  const Chunks& made;
  std::map<std::size_t, std::uint64_t> new_host, new_gpu, new_pages;
  std::map<std::size_t, std::vector<Place>> places;
  std::vector<ShimMemory> fresh;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> larger;  ///< on the host, on the GPU
};

Result<Chunks> plan_of(const Job& job, const cluster::Cluster& cluster) {
  return plan_chunks(job.plan, *job.from, *job.to, cluster, {}, kPage);
}

/// Returns the most memory of any shim, if the switch is made in one go.
std::uint64_t at_once(Job job, const cluster::Cluster& cluster) {
  job.plan.max_extra_bytes = std::uint64_t{1} << 40;
  const auto chunks = plan_of(job, cluster).value();
  cr_assert_leq(chunks.count, 1u, "with room for all nothing is done in several chunks");
  return *std::max_element(chunks.extra_bytes.begin(), chunks.extra_bytes.end());
}

}  // namespace

Test(chunks_in_slabs, no_shim_exceeds_its_bound_under_random_plans_and_every_byte_is_right,
     .timeout = 300) {
  const auto cluster = support::host_cluster(2, 3);
  int in_several = 0, refused = 0, roomy = 0;
  const int cases = support::random_cases(3000);
  for (unsigned seed = 0; seed < static_cast<unsigned>(cases); ++seed) {
    std::mt19937_64 random(seed);
    const auto model = support::random_model(random);
    const auto old_ranks = support::random_ranks(model, cluster, random);
    Job job(old_ranks, support::random_ranks(model, cluster, random), random);
    const std::uint64_t most = at_once(job, cluster);
    if (most == 0) continue;
    job.plan.max_extra_bytes =
        static_cast<std::uint64_t>(pick(random, 0, static_cast<std::int64_t>(most)));
    const auto chunks = plan_of(job, cluster);
    const bool has_room = 2 * job.plan.max_extra_bytes >= most;
    roomy += has_room;
    if (!chunks) {
      refused += has_room;
      continue;
    }
    in_several += chunks->count > 1;
    for (const std::uint64_t extra : chunks->extra_bytes)
      cr_assert_leq(extra, job.plan.max_extra_bytes, "seed %u", seed);
    Carried(job, *chunks).run();
    cr_assert_eq(plan_of(job, cluster)->digest, chunks->digest);
  }
  printf("%d in several; of %d with a half of the room, %d refused\n", in_several, roomy, refused);
  cr_assert_gt(in_several, cases / 15, "%d plans were done in several chunks", in_several);
}

namespace {

/// A model of 60 tensors over `pp` stages of `tp` shards, a rank on each GPU of the first node.
std::vector<RankState> stages(int pp, int tp, std::mt19937_64 sizes) {
  std::vector<RankState> ranks;
  for (int rank = 0; rank < pp * tp; ++rank) ranks.push_back({{0, rank}, {}});
  constexpr int kTensors = 60;
  for (int t = 0; t < kTensors; ++t) {
    Entry entry;
    entry.tensor.name = "t" + std::to_string(t);
    entry.tensor.dtype = DType::i64;
    entry.tensor.shape = {8 * pick(sizes, 1, 6)};  // of at most 384 bytes
    for (int i = 0; i < tp; ++i) {
      entry.part =
          Part::block({entry.tensor.shape[0] * i / tp}, {entry.tensor.shape[0] * (i + 1) / tp});
      ranks[static_cast<std::size_t>(t * pp / kTensors * tp + i)].entries.push_back(entry);
    }
  }
  return ranks;
}

}  // namespace

Test(chunks_in_slabs, with_room_for_some_slabs_the_usual_changes_are_possible) {
  const auto cluster = support::host_cluster(1, 8);
  const std::pair<int, int> shapes[] = {{8, 1}, {4, 2}, {2, 4}, {1, 8}, {4, 1}, {1, 4}, {2, 2}};
  int in_several = 0;
  for (unsigned seed = 0; seed < 3; ++seed)
    for (const auto& [from_pp, from_tp] : shapes)
      for (const auto& [to_pp, to_tp] : shapes) {
        std::mt19937_64 random(seed);
        Job job(stages(from_pp, from_tp, random), stages(to_pp, to_tp, random), random);
        job.plan.max_extra_bytes = 448;
        const auto chunks = plan_of(job, cluster);
        cr_assert(chunks.ok(), "seed %u, %d x %d to %d x %d: %s", seed, from_pp, from_tp, to_pp,
                  to_tp, chunks ? "" : chunks.error().message().c_str());
        in_several += chunks->count > 1;
        cr_assert_leq(chunks->count, 40);
        Carried(job, *chunks).run();
      }
  cr_assert_gt(in_several, 100, "%d plans were done in several chunks", in_several);
}

Test(chunks_in_slabs, memory_that_a_rank_does_not_have_is_refused) {
  const auto cluster = support::host_cluster(1, 8);
  std::mt19937_64 random(1);
  Job job(stages(2, 1, random), stages(1, 2, random), random);
  job.plan.max_extra_bytes = 1024;
  Job other = job;
  other.plan.from[0].memory.slabs.clear();
  cr_assert(plan_of(other, cluster).error().message().ends_with("old rank 0 has no such memory"));
  other = job;
  for (Held& held : other.holds[1]) {
    held.memory = Memory::arena;
    held.at |= std::uint64_t{1} << 62;
  }
  other.plan.from[1].table = other.plan.roster.add(other.holds[1]);
  cr_assert(plan_of(other, cluster).error().message().ends_with("old rank 1 has no such memory"));
  other = job;
  other.plan.to[1].memory = {};
  cr_assert(
      plan_of(other, cluster).error().message().ends_with("program of new rank 1 has no GPU"));
}
