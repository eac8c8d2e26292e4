// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/keeper/chunks.h"

#include <criterion/criterion.h>
#include <cstring>
#include <set>

#include "support/known_bytes.h"
#include "support/random_cases.h"
#include "support/random_worlds.h"

using namespace swell;
using namespace swell::runtime;
using support::pick;

namespace {

constexpr std::uint64_t kPage = 16;

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// Memory of which pages may be missing.
struct Pages {
  std::vector<std::uint8_t> bytes;
  std::vector<bool> there;
  void grow(std::uint64_t to, bool is_there) {
    bytes.resize(to, 0xee);
    there.resize(to / kPage, is_there);
  }
  std::uint64_t live() const {
    return kPage * static_cast<std::uint64_t>(std::count(there.begin(), there.end(), true));
  }
  void put(std::uint64_t at, std::uint64_t count) {
    for (std::uint64_t page = at / kPage; page < rounded(at + count) / kPage; ++page)
      there[page] = true;
  }
};

/// Both plans of a switch as a coordinator has them, and the memory of all shims.
struct Job {
  Job(const std::vector<RankState>& old_ranks, const std::vector<RankState>& new_ranks,
      std::mt19937_64& random) {
    for (const RankState& rank : old_ranks) {
      std::vector<Held>& its = holds.emplace_back();
      Pages memory;
      for (Entry entry : rank.entries) {
        const auto at = static_cast<std::uint64_t>(memory.bytes.size());
        entry.address = 0;
        entry.device = -1;
        memory.grow(at + rounded(static_cast<std::uint64_t>(entry.bytes())), true);
        fill(entry, memory.bytes.data() + at);
        its.push_back({entry, Memory::arena, at});
      }
      plan.from.push_back({rank.gpu, {}, plan.roster.add(its), false});
      old.push_back(std::move(memory));
    }
    for (const RankState& rank : new_ranks) {
      NewRank made{rank.gpu, -1, 0};
      std::vector<Entry>& its = entries.emplace_back();
      // Seldom another shim on that GPU.
      for (std::size_t i = 0; i < old_ranks.size(); ++i)
        if (old_ranks[i].gpu == rank.gpu && random() % 8 != 0)
          made.old_rank = static_cast<std::int32_t>(i);
      for (Entry entry : rank.entries) {
        entry.address = 0;
        entry.device = -1;
        its.push_back(std::move(entry));
      }
      made.table = plan.roster.add(its);
      plan.to.push_back(std::move(made));
    }
    from.emplace(merge(old_ranks).value());
    to.emplace(merge(new_ranks).value());
  }
  static void fill(const Entry& entry, std::uint8_t* memory) {
    support::each_known_byte(entry,
                             [&](std::uint64_t at, std::uint8_t value) { memory[at] = value; });
  }
  Prepare plan;
  std::vector<std::vector<Held>> holds;     ///< by old rank
  std::vector<std::vector<Entry>> entries;  ///< by new rank
  std::optional<World> from, to;
  std::vector<Pages> old;
};

/// A new rank's parts: in place, or at an offset of its new memory.
struct Place {
  const Entry* entry = nullptr;
  bool is_kept = false;
  std::uint64_t at = 0;
  std::vector<const Move*> moves;
};

/// Carries out the chunks byte by byte. Fails where a shim holds more than it may, where what is
/// read has gone, or where a value is wrong at the end.
void carry_out(Job job, const Chunks& chunks, const std::string& what) {
  std::vector<Pages> fresh(job.plan.to.size());
  std::vector<std::vector<Place>> places(job.plan.to.size());
  std::vector<std::set<std::uint64_t>> kept(job.plan.from.size());
  std::vector<std::uint64_t> old_bytes, new_bytes;
  for (const Pages& each : job.old) old_bytes.push_back(each.live());
  const auto held_of = [&](const Move& move) -> const Held& {
    const std::string& name = job.from->tensors()[move.from_tensor].info.name;
    for (const Held& held : job.holds[move.from_rank])
      if (job.from->find(held.entry.tensor.name)->info.name == name &&
          held.entry.part == job.from->part(move.from_part))
        return held;
    cr_assert(false, "%s: no such source", what.c_str());
    std::abort();
  };
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const NewRank& its = job.plan.to[rank];
    for (const Entry& entry : job.entries[rank]) {
      Place place{&entry, false, fresh[rank].bytes.size(), {}};
      for (const Move& move : chunks.moves[rank])
        if (&job.to->tensors()[move.tensor] == job.to->find(entry.tensor.name) &&
            job.to->part(move.to_part) == entry.part)
          place.moves.push_back(&move);
      const auto bytes = static_cast<std::uint64_t>(entry.bytes());
      if (!place.moves.empty() && place.moves[0]->nearness == Nearness::in_place &&
          static_cast<std::int32_t>(place.moves[0]->from_rank) == its.old_rank) {
        const Held& source = held_of(*place.moves[0]);
        std::int64_t shift = 0;
        each_run(place.moves[0]->box, source.entry.part, entry.part,
                 [&](std::int64_t a, std::int64_t b, std::int64_t) { shift = a - b; });
        place.is_kept = true;
        place.at = source.at + static_cast<std::uint64_t>(shift * bytes_of(entry.tensor.dtype));
        for (std::uint64_t page = place.at / kPage; page < rounded(place.at + bytes) / kPage;
             ++page)
          kept[static_cast<std::size_t>(its.old_rank)].insert(page);
      } else {
        fresh[rank].grow(place.at + rounded(bytes), false);
      }
      places[rank].push_back(std::move(place));
    }
    new_bytes.push_back(fresh[rank].bytes.size());
    if (its.old_rank >= 0)
      new_bytes.back() += kPage * kept[static_cast<std::size_t>(its.old_rank)].size();
  }
  std::vector<std::uint64_t> extra(places.size());
  const auto check_live = [&] {
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      const auto at = static_cast<std::size_t>(job.plan.to[rank].old_rank);
      const bool was = job.plan.to[rank].old_rank >= 0;
      const std::uint64_t live = fresh[rank].live() + (was ? job.old[at].live() : 0),
                          larger = std::max(new_bytes[rank], was ? old_bytes[at] : 0);
      extra[rank] = std::max(extra[rank], live - std::min(live, larger));
    }
  };
  for (std::uint32_t chunk = 0; chunk < chunks.count; ++chunk) {
    for (std::size_t rank = 0; rank < job.old.size(); ++rank)
      for (const Release& each : chunks.releases[rank]) {
        if (each.chunk != chunk) continue;
        cr_assert(each.at % kPage == 0 && each.bytes % kPage == 0 && each.bytes > 0);
        for (std::uint64_t at = each.at; at < each.at + each.bytes; at += kPage) {
          cr_assert(job.old[rank].there.at(at / kPage), "%s: it went twice", what.c_str());
          job.old[rank].there[at / kPage] = false;
          std::memset(&job.old[rank].bytes[at], 0xee, kPage);
        }
      }
    const auto each_move = [&](auto&& each) {
      for (std::size_t rank = 0; rank < places.size(); ++rank)
        for (const Place& place : places[rank])
          for (const Move* move : place.moves)
            if (!place.is_kept && move->chunk == chunk) each(rank, place, *move);
    };
    each_move([&](std::size_t rank, const Place& place, const Move& move) {
      const auto size = static_cast<std::uint64_t>(bytes_of(place.entry->tensor.dtype));
      std::uint64_t begin = UINT64_MAX, end = 0;  // as a keeper takes memory for it
      each_run(move.box, held_of(move).entry.part, place.entry->part,
               [&](std::int64_t, std::int64_t b, std::int64_t n) {
                 const std::uint64_t at = place.at + static_cast<std::uint64_t>(b) * size;
                 begin = std::min(begin, at);
                 end = std::max(end, at + static_cast<std::uint64_t>(n) * size);
               });
      fresh[rank].put(begin, end - begin);
    });
    check_live();
    each_move([&](std::size_t rank, const Place& place, const Move& move) {
      const auto size = static_cast<std::uint64_t>(bytes_of(place.entry->tensor.dtype));
      const Held& source = held_of(move);
      const Pages& memory = job.old[move.from_rank];
      each_run(move.box, source.entry.part, place.entry->part,
               [&](std::int64_t a, std::int64_t b, std::int64_t n) {
                 for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(n) * size; ++k) {
                   const std::uint64_t at = source.at + static_cast<std::uint64_t>(a) * size + k;
                   cr_assert(memory.there[at / kPage], "%s: chunk %u reads what is gone",
                             what.c_str(), chunk);
                   fresh[rank].bytes[place.at + static_cast<std::uint64_t>(b) * size + k] =
                       memory.bytes[at];
                 }
               });
    });
  }
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    cr_assert_leq(extra[rank], chunks.extra_bytes[rank], "%s: more than was said", what.c_str());
    cr_assert_leq(chunks.extra_bytes[rank], job.plan.max_extra_bytes, "%s", what.c_str());
    for (const Place& place : places[rank]) {
      const Pages& memory = place.is_kept
                                ? job.old[static_cast<std::size_t>(job.plan.to[rank].old_rank)]
                                : fresh[rank];
      std::vector<std::uint8_t> wanted(static_cast<std::size_t>(place.entry->bytes()));
      Job::fill(*place.entry, wanted.data());
      const std::int64_t size = bytes_of(place.entry->tensor.dtype);
      for (const Box& box : boxes_of(place.entry->part))
        each_run(box, place.entry->part, place.entry->part,
                 [&](std::int64_t at, std::int64_t, std::int64_t n) {
                   const auto first = static_cast<std::size_t>(at * size);
                   const auto bytes = static_cast<std::size_t>(n * size);
                   for (std::size_t k = first; k < first + bytes; ++k)
                     cr_assert(memory.there[(place.at + k) / kPage], "%s: a page is missing",
                               what.c_str());
                   cr_assert_eq(std::memcmp(&memory.bytes[place.at + first], &wanted[first], bytes),
                                0, "%s: rank %zu, tensor %s", what.c_str(), rank,
                                place.entry->tensor.name.c_str());
                 });
    }
  }
}

/// Returns the most memory of any shim, if the switch is made in one go.
std::uint64_t at_once(const Job& job, const cluster::Cluster& cluster) {
  Prepare plan = job.plan;
  plan.max_extra_bytes = std::uint64_t{1} << 40;
  const auto chunks = plan_chunks(plan, *job.from, *job.to, cluster, {}, kPage).value();
  cr_assert_leq(chunks.count, 1u, "with room for all nothing is done in several chunks");
  return *std::max_element(chunks.extra_bytes.begin(), chunks.extra_bytes.end());
}

/// One tensor of `bytes`, of which rank i of so many holds the part `order[i]`.
std::vector<RankState> shards(std::int64_t elements, const std::vector<int>& order) {
  std::vector<RankState> ranks;
  const auto count = static_cast<std::int64_t>(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    Entry entry;
    entry.tensor.name = "t0";
    entry.tensor.dtype = DType::i64;
    entry.tensor.shape = {elements};
    const std::int64_t width = elements / count;
    entry.part = Part::block({order[i] * width}, {(order[i] + 1) * width});
    entry.address = 4096;
    ranks.push_back({{0, static_cast<int>(i)}, {entry}});
  }
  return ranks;
}

}  // namespace

Test(chunks, no_shim_exceeds_its_bound_under_random_plans_and_every_byte_is_right, .timeout = 300) {
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
    const auto chunks = plan_chunks(job.plan, *job.from, *job.to, cluster, {}, kPage);
    const bool has_room = 2 * job.plan.max_extra_bytes >= most;
    roomy += has_room;
    if (!chunks) {
      refused += has_room;
      continue;
    }
    in_several += chunks->count > 1;
    carry_out(job, *chunks, "seed " + std::to_string(seed));
    const auto again = plan_chunks(job.plan, *job.from, *job.to, cluster, {}, kPage).value();
    cr_assert_eq(again.digest, chunks->digest);
  }
  printf("%d in several; of %d with a half of the room, %d refused\n", in_several, roomy, refused);
  cr_assert_gt(in_several, cases / 10, "%d plans were done in several chunks", in_several);
  cr_assert_lt(10 * refused, roomy, "with a half of the room %d of %d were refused", refused,
               roomy);
}

Test(chunks, swaps_of_ranks_stay_within_any_bound_of_some_pages) {
  std::mt19937_64 random(8);  // each rank keeps its shim
  Job job(shards(1200, {0, 1, 2}), shards(1200, {1, 2, 0}), random);
  for (std::size_t i = 0; i < 3; ++i) job.plan.to[i].old_rank = static_cast<std::int32_t>(i);
  const auto cluster = support::host_cluster(1, 3);
  cr_assert_eq(at_once(job, cluster), 3200u);
  std::uint32_t before = 1;
  for (const std::uint64_t bound : {1600, 400, 4 * 16}) {
    job.plan.max_extra_bytes = bound;
    const auto chunks = plan_chunks(job.plan, *job.from, *job.to, cluster, {}, kPage).value();
    cr_assert_gt(chunks.count, before);
    cr_assert_leq(chunks.count, 2 + 3200 / (bound - kPage));
    before = chunks.count;
    carry_out(job, chunks, "a bound of " + std::to_string(bound));
  }
  job.plan.max_extra_bytes = kPage - 1;
  cr_assert_eq(plan_chunks(job.plan, *job.from, *job.to, cluster, {}, kPage).error().message(),
               "a bound of 15 bytes is too small for chunks");
}

Test(chunks, memory_of_programs_counts_for_nothing) {
  std::mt19937_64 random(8);
  Job job(shards(1200, {0, 1}), shards(1200, {1, 0}), random);
  for (std::size_t i = 0; i < 2; ++i) job.plan.to[i].old_rank = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < 2; ++i) {
    job.entries[i][0].address = 4096;
    job.plan.to[i].table = job.plan.roster.add(job.entries[i]);
  }
  job.plan.max_extra_bytes = 0;
  const auto chunks =
      plan_chunks(job.plan, *job.from, *job.to, support::host_cluster(1, 2), {}, kPage).value();
  cr_assert_eq(chunks.extra_bytes[0], 0u);
  cr_assert_eq(chunks.count, 1u);
}

Test(chunks, a_shim_is_given_its_own_moves_alone_and_the_same_as_all_together) {
  std::mt19937_64 random(8);
  Job job(shards(1200, {0, 1, 2}), shards(1200, {1, 2, 0}), random);
  for (std::size_t i = 0; i < 3; ++i) job.plan.to[i].old_rank = static_cast<std::int32_t>(i);
  const auto cluster = support::host_cluster(1, 3);
  job.plan.max_extra_bytes = 400;
  const auto all = plan_chunks(job.plan, *job.from, *job.to, cluster, {}, kPage).value();
  for (std::int32_t rank = -1; rank < 3; ++rank) {
    job.plan.old_rank = rank < 0 ? 0 : rank;  // of the first the GPU goes back
    job.plan.new_rank = rank;
    const auto own = plan_chunks(job.plan, *job.from, *job.to, cluster, {}, kPage).value();
    cr_assert_eq(own.digest, all.digest);
    cr_assert_eq(own.moves.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      if (static_cast<std::int32_t>(i) != rank) {
        cr_assert(own.moves[i].empty());
        continue;
      }
      cr_assert_eq(own.moves[i].size(), all.moves[i].size());
      for (std::size_t k = 0; k < own.moves[i].size(); ++k) {
        cr_assert_eq(own.moves[i][k].chunk, all.moves[i][k].chunk);
        cr_assert(own.moves[i][k].box == all.moves[i][k].box);
      }
    }
    cr_assert_gt(all.moves[0].back().chunk, 0u);
  }
}
