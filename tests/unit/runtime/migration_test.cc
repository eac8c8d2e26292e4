// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/plan/migration.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <map>

#include "support/random_cases.h"
#include "support/random_worlds.h"

using namespace swell;
using namespace swell::runtime;

namespace {

/// The memory of each rank, tensor and part: for each place the tensor's element that it holds; -1:
/// padding.
using Memory =
    std::map<std::tuple<std::uint32_t, std::string, std::uint32_t>, std::vector<std::int64_t>>;

std::vector<std::int64_t> contents(const Part& part, const Shape& shape) {
  std::vector<std::int64_t> memory(static_cast<std::size_t>(part.elements()), -1);
  const Part all = Part::whole(shape);
  for (const Box& box : boxes_of(part))
    each_run(box, part, all, [&](std::int64_t at, std::int64_t element, std::int64_t count) {
      for (std::int64_t k = 0; k < count; ++k)
        memory.at(static_cast<std::size_t>(at + k)) = element + k;
    });
  return memory;
}

Memory memory_of(const World& world) {
  Memory memory;
  for (const World::Tensor& tensor : world.tensors())
    for (const Holding& holding : world.distribution_of(tensor))
      memory[{holding.rank, tensor.info.name, holding.part}] =
          contents(world.part(holding.part), tensor.info.shape);
  return memory;
}

/// Fails unless the moves make each value of the new world exactly once, from an old rank that has
/// it.
void check_moves(const World& from, const World& to, const Migration& migration, unsigned seed) {
  const Memory old = memory_of(from), wanted = memory_of(to);
  std::map<Memory::key_type, std::vector<int>> made;
  for (const auto& [key, values] : wanted) made[key].resize(values.size(), 0);
  std::int64_t sums[kNearnesses] = {};
  for (std::uint32_t rank = 0; rank < to.ranks().size(); ++rank)
    for (const Move& move : migration.needs_of(rank)) {
      cr_assert_eq(move.to_rank, rank);
      const TensorInfo& info = to.tensors()[move.tensor].info;
      const auto& source =
          old.at({move.from_rank, from.tensors()[move.from_tensor].info.name, move.from_part});
      const auto& target = wanted.at({rank, info.name, move.to_part});
      auto& count = made.at({rank, info.name, move.to_part});
      const cluster::GpuRef &there = from.ranks()[move.from_rank], &here = to.ranks()[rank];
      cr_assert_eq(move.nearness <= Nearness::device, there == here, "seed %u", seed);
      cr_assert_eq(move.nearness <= Nearness::node, there.node == here.node, "seed %u", seed);
      cr_assert_eq(move.bytes, move.box.elements() * bytes_of(info.dtype));
      sums[static_cast<int>(move.nearness)] += move.bytes;
      std::int64_t shift = 0;
      bool first = true;
      each_run(move.box, from.part(move.from_part), to.part(move.to_part),
               [&](std::int64_t a, std::int64_t b, std::int64_t run) {
                 if (!first && move.nearness == Nearness::in_place)
                   cr_assert_eq(a - b, shift, "seed %u: not one run of memory", seed);
                 first = false;
                 shift = a - b;
                 for (std::int64_t k = 0; k < run; ++k) {
                   cr_assert_eq(source.at(static_cast<std::size_t>(a + k)),
                                target.at(static_cast<std::size_t>(b + k)),
                                "seed %u: a wrong source", seed);
                   ++count.at(static_cast<std::size_t>(b + k));
                 }
               });
    }
  for (const auto& [key, counts] : made)
    for (std::size_t k = 0; k < counts.size(); ++k)
      cr_assert_eq(counts[k], wanted.at(key)[k] >= 0,
                   "seed %u: rank %u, tensor %s, place %zu made %d times", seed, std::get<0>(key),
                   std::get<1>(key).c_str(), k, counts[k]);
  for (int i = 0; i < kNearnesses; ++i) cr_assert_eq(sums[i], migration.summary().bytes[i]);
}

TensorInfo info(std::string name, Shape shape, int layer = 0) {
  return {std::move(name), layer, Kind::parameter, DType::f32, std::move(shape), false};
}
RankState rank_with(cluster::GpuRef gpu, const TensorInfo& tensor, Part part) {
  return {gpu, {{tensor, std::move(part), "", 4096, 0}}};
}

}  // namespace

Test(migration, makes_each_byte_of_random_plans_once_from_a_right_source, .timeout = 300) {
  const auto cases = static_cast<unsigned>(support::random_cases(10'000));
  for (unsigned seed = 1; seed <= cases; ++seed) {
    std::mt19937_64 random(seed);
    const auto cluster = support::host_cluster(static_cast<int>(1 + random() % 4),
                                               static_cast<int>(1 + random() % 4));
    const auto model = support::random_model(random);
    const World from = merge(support::random_ranks(model, cluster, random)).value();
    const World to = merge(support::random_ranks(model, cluster, random)).value();
    MigrationOptions options;
    if (seed % 2) options.max_move_bytes = 8 + static_cast<std::int64_t>(random() % 100);
    const auto migration = plan_migration(from, to, cluster, options);
    cr_assert(migration.ok());
    check_moves(from, to, *migration, seed);
    cr_assert_eq(plan_migration(from, to, cluster, options)->digest(), migration->digest());
  }
}

Test(migration, an_unchanged_plan_moves_nothing) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto cluster = support::host_cluster(4, 4);
    const World world =
        merge(support::random_ranks(support::random_model(random), cluster, random)).value();
    const auto summary = plan_migration(world, world, cluster).value().summary();
    cr_assert_eq(summary.total_bytes(), summary.bytes[static_cast<int>(Nearness::in_place)],
                 "seed %u", seed);
  }
}

/// Suika, Fig. 3: PP2 DP2 TP2 over two nodes of 4 GPUs; 2 more GPUs of node 2 become a third group
/// of the second stage, and one of the 8 layers goes there.
Test(migration, one_layer_of_eight_leaves_its_node_in_suikas_third_figure) {
  const auto cluster = support::host_cluster(2, 6, 1);
  const auto plan = [](int first_stage, int second_groups) {
    std::vector<RankState> ranks;
    for (int stage = 0; stage < 2; ++stage)
      for (int gpu = 0; gpu < 2 * (stage == 0 ? 2 : second_groups); ++gpu) {
        RankState rank{{stage, gpu}, {}};
        for (int layer = stage == 0 ? 0 : first_stage; layer < (stage == 0 ? first_stage : 8);
             ++layer)
          rank.entries.push_back({info("layer" + std::to_string(layer), {8, 4}, layer),
                                  Part::block({4 * (gpu % 2), 0}, {4 * (gpu % 2) + 4, 4}), "",
                                  static_cast<std::uintptr_t>(4096 * (1 + layer)), 0});
        ranks.push_back(std::move(rank));
      }
    return merge(ranks).value();
  };
  const World from = plan(4, 2), to = plan(3, 3);
  const Migration migration = plan_migration(from, to, cluster).value();
  check_moves(from, to, migration, 0);
  std::map<std::string, std::int64_t> leaves;  // each tensor once, however many replicas want it
  for (std::uint32_t rank = 0; rank < to.ranks().size(); ++rank)
    for (const Move& move : migration.needs_of(rank))
      if (move.nearness > Nearness::node) leaves[to.tensors()[move.tensor].info.name] = 8 * 4 * 4;
  std::int64_t moved = 0;
  for (const auto& [name, bytes] : leaves) moved += bytes;
  const std::int64_t state = 8 * 8 * 4 * 4;
  cr_assert_leq(static_cast<double>(moved), 0.13 * static_cast<double>(state));
  const auto& bytes = migration.summary().bytes;
  cr_assert_eq(bytes[static_cast<int>(Nearness::in_place)], (3 * 2 + 4 * 2) * 128,
               "what both plans have where it is");
  cr_assert_eq(bytes[static_cast<int>(Nearness::node)], 4 * 128,
               "the new group's layers that its node has");
  cr_assert_eq(migration.summary().network_bytes(), 3 * 128,
               "the one layer, for each of the three groups");
}

Test(migration, prefers_the_same_node_then_the_same_rail_then_the_rack) {
  const auto cluster =
      support::host_cluster(4, 2);  // nodes 0 and 2 in one rack, 1 and 3 in the other
  const TensorInfo t = info("w", {16});
  const Part all = Part::whole({16});
  const auto source = [&](std::vector<cluster::GpuRef> holders, cluster::GpuRef wanted) {
    std::vector<RankState> old;
    for (const cluster::GpuRef gpu : holders) old.push_back(rank_with(gpu, t, all));
    const World from = merge(old).value(), to = merge({rank_with(wanted, t, all)}).value();
    const Migration migration = plan_migration(from, to, cluster).value();
    const Move move = migration.needs_of(0).at(0);
    return std::make_pair(holders.at(move.from_rank), move.nearness);
  };
  cr_assert(source({{1, 1}, {2, 1}, {0, 0}}, {0, 1}) ==
            std::make_pair(cluster::GpuRef{0, 0}, Nearness::node));
  cr_assert(source({{1, 1}, {2, 0}, {2, 1}}, {0, 1}) ==
            std::make_pair(cluster::GpuRef{2, 1}, Nearness::rail));
  cr_assert(source({{1, 1}, {2, 0}}, {0, 1}) ==
            std::make_pair(cluster::GpuRef{2, 0}, Nearness::rack));
  cr_assert(source({{2, 0}, {0, 1}}, {0, 1}) ==
            std::make_pair(cluster::GpuRef{0, 1}, Nearness::in_place));
}

Test(migration, replicas_share_the_sending) {
  const auto cluster = support::host_cluster(1, 8);
  const TensorInfo t = info("w", {1024, 1024});
  const Part all = Part::whole({1024, 1024});
  std::vector<RankState> old, now;
  for (int device = 0; device < 4; ++device) old.push_back(rank_with({0, device}, t, all));
  for (int device = 4; device < 8; ++device) now.push_back(rank_with({0, device}, t, all));
  MigrationOptions options;
  options.max_move_bytes = 1 << 16;
  const World from = merge(old).value(), to = merge(now).value();
  const Migration migration = plan_migration(from, to, cluster, options).value();
  std::map<std::uint32_t, std::int64_t> sent;
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    for (const Move& move : migration.needs_of(rank)) sent[move.from_rank] += move.bytes;
  cr_assert_eq(sent.size(), 4);
  for (const auto& [rank, bytes] : sent)
    cr_assert_eq(bytes, 1024 * 1024 * 4, "rank %u sends %ld bytes", rank, static_cast<long>(bytes));
}

Test(migration, a_busy_link_is_relieved_by_a_farther_replica) {
  // Node 2 is in node 0's rack and holds one replica; node 1 holds three more, behind half the
  // bandwidth.
  const auto cluster = support::host_cluster(3, 4);
  std::vector<RankState> old, now;
  const TensorInfo t = info("w", {4096, 64});
  const Part all = Part::whole({4096, 64});
  old.push_back(rank_with({2, 0}, t, all));
  for (int device = 0; device < 3; ++device) old.push_back(rank_with({1, device}, t, all));
  for (int device = 0; device < 4; ++device) now.push_back(rank_with({0, device}, t, all));
  MigrationOptions options;
  options.max_move_bytes = 1 << 14;
  const World from = merge(old).value(), to = merge(now).value();
  const Migration migration = plan_migration(from, to, cluster, options).value();
  const auto& summary = migration.summary();
  // All from node 2: its one device's share of the cards, a quarter of 50 GB/s, sends four copies.
  const double nearest_only_s = 4.0 * 4096 * 64 * 4 / (5e10 / 4);
  cr_assert_lt(summary.busiest_link_s, 0.6 * nearest_only_s, "%g of %g", summary.busiest_link_s,
               nearest_only_s);
  cr_assert_gt(summary.bytes[static_cast<int>(Nearness::far)], 0);
}

Test(migration, memory_has_one_successor) {
  const auto cluster = support::host_cluster(1, 1);
  const TensorInfo t = info("w", {4});
  const Part all = Part::whole({4});
  const World from = merge({rank_with({0, 0}, t, all)}).value();
  const World to = merge({rank_with({0, 0}, t, all), rank_with({0, 0}, t, all)}).value();
  const Migration migration = plan_migration(from, to, cluster).value();
  cr_assert_eq(migration.needs_of(0).at(0).nearness, Nearness::in_place);
  cr_assert_eq(migration.needs_of(1).at(0).nearness, Nearness::device);
}

Test(migration, a_shard_that_is_a_run_of_the_old_memory_stays_in_place) {
  const auto cluster = support::host_cluster(1, 2);
  const TensorInfo t = info("w", {4, 4});
  const World from = merge({rank_with({0, 0}, t, Part::whole({4, 4}))}).value();
  const auto halves = [&](Shape first_end, Shape second_begin) {
    const World to = merge({rank_with({0, 0}, t, Part::block({0, 0}, std::move(first_end))),
                            rank_with({0, 1}, t, Part::block(std::move(second_begin), {4, 4}))})
                         .value();
    return plan_migration(from, to, cluster).value().needs_of(0).at(0).nearness;
  };
  cr_assert_eq(halves({2, 4}, {2, 0}), Nearness::in_place, "rows");
  cr_assert_eq(halves({4, 2}, {0, 2}), Nearness::device, "columns are not a run");
}

Test(migration, only_an_optional_tensor_may_be_new) {
  const auto cluster = support::host_cluster(1, 2);
  const Part all = Part::whole({4});
  TensorInfo rng = info("rng/1", {4});
  RankState rank = rank_with({0, 0}, info("w", {4}), all);
  const World from = merge({rank}).value();
  rank.entries.push_back({rng, all, "", 8192, 0});
  const auto refused = plan_migration(from, merge({rank}).value(), cluster);
  cr_assert_not(refused.ok());
  cr_assert_eq(refused.error().message(),
               "tensor rng/1 is in no rank of the old plan; only an optional tensor may be new");
  rank.entries.back().tensor.optional = true;
  const World to = merge({rank}).value();
  cr_assert_eq(plan_migration(from, to, cluster)->needs_of(0).size(), 1);
  const World outside = merge({rank_with({0, 2}, info("w", {4}), all)}).value();
  cr_assert_eq(plan_migration(from, outside, cluster).error().message(),
               "rank 0 of the new plan is on device 2 of node n0, which has 2");
}

Test(migration, another_choice_of_sources_has_another_digest) {
  const auto cluster = support::host_cluster(2, 4);
  const TensorInfo t = info("w", {64});
  const auto plan = [&](cluster::GpuRef old, cluster::GpuRef wanted) {
    return plan_migration(merge({rank_with(old, t, Part::whole({64}))}).value(),
                          merge({rank_with(wanted, t, Part::whole({64}))}).value(), cluster)
        ->digest();
  };
  cr_assert_eq(plan({0, 0}, {0, 1}), plan({0, 0}, {0, 1}));
  cr_assert_neq(plan({0, 0}, {0, 1}), plan({0, 0}, {1, 1}));
}

Test(migration, leavers_send_only_what_nobody_else_has) {
  // Ranks 1 and 2 leave; rank 0, on another node, has what rank 2 has.
  const auto cluster = support::host_cluster(2, 4);
  const TensorInfo t = info("w", {64});
  const Part first = Part::block({0}, {32}), second = Part::block({32}, {64});
  const World from = merge({rank_with({1, 0}, t, second), rank_with({0, 1}, t, first),
                            rank_with({0, 2}, t, second)})
                         .value();
  const World to = merge({rank_with({0, 0}, t, Part::whole({64}))}).value();
  MigrationOptions options;
  options.leaving = {false, true, true};
  const auto moves = plan_migration(from, to, cluster, options).value().needs_of(0);
  cr_assert_eq(moves.size(), 2u);
  for (const Move& move : moves) {
    cr_assert_eq(move.only_there, move.box.begin[0] == 0);
    cr_assert_eq(move.from_rank, move.only_there ? 1 : 0, "though rank 2 is nearer");
  }
  for (const Move& move : plan_migration(from, to, cluster).value().needs_of(0))
    cr_assert_not(move.only_there || move.from_rank == 0);
}

Test(migration, with_leavers_every_byte_comes_once_and_from_a_right_source) {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random(seed);
    const auto cluster = support::host_cluster(2, 4);
    const auto model = support::random_model(random);
    const World from = merge(support::random_ranks(model, cluster, random)).value();
    const World to = merge(support::random_ranks(model, cluster, random)).value();
    MigrationOptions options;
    for (std::size_t rank = 0; rank < from.ranks().size(); ++rank)
      options.leaving.push_back(random() % 2 == 0);
    const auto migration = plan_migration(from, to, cluster, options).value();
    check_moves(from, to, migration, seed);
    for (std::uint32_t rank = 0; rank < to.ranks().size(); ++rank)
      for (const Move& move : migration.needs_of(rank))
        cr_assert_eq(move.only_there, bool{options.leaving[move.from_rank]}, "seed %u", seed);
  }
}

Test(migration, leavers_are_told_of_all_ranks_or_none) {
  const auto cluster = support::host_cluster(1, 1);
  const World world = merge({rank_with({0, 0}, info("w", {4}), Part::whole({4}))}).value();
  MigrationOptions options;
  options.leaving = {true, false};
  cr_assert_eq(plan_migration(world, world, cluster, options).error().message(),
               "it is said of 2 ranks whether they leave; the old plan has 1");
}
