// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/state/roster.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <random>
#include <string>
#include <vector>

#include "runtime/plan/placement.h"
#include "runtime/wire/messages.h"
#include "support/random_worlds.h"

using namespace swell;
using namespace swell::runtime;
using support::pick;

namespace {

/// As it is after it was sent.
Roster sent(const Roster& roster) {
  ByteWriter writer;
  roster.write(writer);
  const std::string message = writer.take();
  ByteReader reader(message);
  Roster read = Roster::read(reader);
  cr_assert(reader.done());
  return read;
}

/// A layer's weight on rank `tp` of so many.
Entry shard(int layer, int tp, int ranks) {
  const std::int64_t width = 4096 / ranks;
  return {{"layers." + std::to_string(layer) + ".weight",
           layer,
           Kind::parameter,
           DType::bf16,
           {4096, 1024},
           false},
          Part::block({tp * width, 0}, {(tp + 1) * width, 1024}),
          "",
          0,
          -1};
}

}  // namespace

Test(roster, gives_back_what_was_added_also_after_it_was_sent) {
  std::mt19937_64 random(11);
  const auto cluster = support::host_cluster(2, 3);
  for (int round = 0; round < 300; ++round) {
    Roster roster;
    std::vector<std::vector<Held>> tables;
    std::vector<std::uint32_t> numbers;
    const auto ranks = support::random_ranks(support::random_model(random), cluster, random);
    for (const RankState& rank : ranks) {
      std::vector<Held>& table = tables.emplace_back();
      for (Entry entry : rank.entries) {
        entry.device = static_cast<int>(pick(random, -1, 1));
        entry.address = static_cast<std::uintptr_t>(pick(random, 0, 1) * pick(random, 1, 1 << 20));
        const Memory memory = memory_of(entry);
        table.push_back({entry, memory, is_own(memory) ? own_place_of(entry) : random() >> 2});
      }
      numbers.push_back(roster.add(table));
    }
    const Roster read = sent(roster);
    for (std::size_t rank = 0; rank < tables.size(); ++rank)
      for (const Roster* one : {static_cast<const Roster*>(&roster), &read}) {
        const std::vector<Held> held = one->held(numbers[rank]);
        cr_assert_eq(write(1, held), write(1, tables[rank]));
        for (std::size_t i = 0; i < held.size(); ++i)
          cr_assert_eq(one->bytes_of(one->rows(numbers[rank])[i]), held[i].bytes());
      }
  }
}

Test(roster, gives_back_what_programs_declared) {
  Entry own = shard(0, 1, 4), on_gpu = shard(1, 2, 4), tied = shard(2, 0, 4);
  own.address = 4096;
  on_gpu.address = 8192;
  on_gpu.device = 3;
  tied.alias_of = own.tensor.name;
  const std::vector<Entry> entries{own, on_gpu, tied};
  Roster roster;
  const std::uint32_t number = roster.add(entries);
  cr_assert_eq(write(sent(roster).entries(number)), write(entries));
}

// A message of more than Channel::kMaxBody is not sent: with every rank's tensors in full, this
// training could not be switched at all.
Test(roster, a_thousand_ranks_are_told_in_one_message_of_moderate_size) {
  constexpr int kLayers = 1200, kRanks = 1024, kTp = 8;
  Prepare prepare;
  prepare.cluster = "{}";
  std::size_t in_full = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<Held> table;
    for (int layer = 0; layer < kLayers; ++layer)
      table.push_back(
          {shard(layer, rank % kTp, kTp), Memory::arena, static_cast<std::uint64_t>(layer) << 20});
    prepare.from.push_back({{rank / 8, rank % 8}, {}, prepare.roster.add(table)});
    in_full += write(1, table).size();
  }
  cr_assert_gt(in_full, Channel::kMaxBody);
  cr_assert_eq(prepare.roster.tables(), kTp);
  const std::string message = write(prepare);
  cr_assert_lt(message.size(), 1u << 20);
  const auto read = read_prepare(message);
  cr_assert(read.ok());
  cr_assert_eq(read->roster.held(read->from[kRanks - 1].table)[kLayers - 1].at,
               std::uint64_t{kLayers - 1} << 20);
}

Test(roster, ranks_that_disagree_on_a_tensor_are_still_found_out) {
  Prepare prepare;
  for (int rank = 0; rank < 2; ++rank) {
    Entry entry = shard(0, rank, 2);
    if (rank == 1) entry.tensor.dtype = DType::f32;
    prepare.to.push_back({{0, rank}, -1, prepare.roster.add(std::vector<Entry>{entry})});
  }
  cr_assert_eq(new_world(prepare).error().message(),
               "rank 1: tensor layers.0.weight: two ranks disagree on its shape, dtype, kind or "
               "layer");
}

Test(roster, numbers_that_are_none_of_it_are_refused) {
  Roster roster;
  roster.add(std::vector<Entry>{shard(0, 0, 1)});
  ByteWriter writer;
  roster.write(writer);
  const std::string good = writer.take();
  // The last bytes are the only row's: memory, tensor, part, place.
  const std::size_t row = good.size() - 4;
  const struct {
    std::size_t at;
    char value;
  } bad[] = {{row, 4}, {row, 0x41}, {row + 1, 2}, {row + 1, 1}, {row + 2, 1}};
  for (const auto& one : bad) {
    std::string message = good;
    message[one.at] = one.value;
    ByteReader reader(message);
    Roster::read(reader);
    cr_assert_not(reader.done(), "byte %zu as %d is taken", one.at, one.value);
  }
}
