// SPDX-License-Identifier: GPL-2.0-or-later
#include "profiler/assemble.h"

#include <algorithm>
#include <cmath>
#include <criterion/criterion.h>
#include <random>

#include "core/perf/peak_memory.h"
#include "core/perf/profile_json.h"
#include "core/perf/solve.h"
#include "core/perf/stability.h"
#include "runtime/state/state_profile.h"
#include "support/profiles.h"

using namespace swell;
using namespace swell::profiler;
using runtime::profile_of;

namespace {

runtime::Entry entry(const char* name, int layer, runtime::Kind kind, std::int64_t elements,
                     const char* alias_of = "") {
  return {{name, layer, kind, runtime::DType::f32, {elements}, false},
          runtime::Part::whole({elements}),
          alias_of,
          4096,
          0};
}

}  // namespace

Test(assemble, registered_state_is_summed_by_what_it_is) {
  using runtime::Kind;
  const RankProfile made =
      profile_of({1, 2}, {}, 4,
                 {entry("w", 0, Kind::parameter, 100), entry("g", 0, Kind::gradient, 100),
                  entry("m", 0, Kind::moment, 200), entry("e", -1, Kind::parameter, 10),
                  entry("eg", -1, Kind::gradient, 10), entry("tied", -1, Kind::parameter, 10, "e"),
                  entry("rng", -1, Kind::rng, 1000)},
                 77);
  cr_assert_eq(made.layer_param_bytes, 400);
  cr_assert_eq(made.layer_state_bytes, 1200);
  cr_assert_eq(made.extra_param_bytes, 40);
  cr_assert_eq(made.extra_state_bytes, 40, "a tied tensor counts once");
  cr_assert_eq(made.peak_bytes, 5680, "what is registered is there, whatever the program says");
}

Test(assemble, gradients_that_nobody_registers_are_as_large_as_the_parameters) {
  using runtime::Kind;
  const RankProfile made =
      profile_of({}, {}, 4,
                 {entry("w", 0, Kind::parameter, 100), entry("m", 0, Kind::moment, 200),
                  entry("e", -1, Kind::parameter, 10), entry("tied", -1, Kind::parameter, 10, "e")},
                 0);
  cr_assert_eq(made.layer_param_bytes, 400);
  cr_assert_eq(made.extra_param_bytes, 40);
  cr_assert_eq(made.layer_state_bytes, 1200);
  cr_assert_eq(made.peak_bytes, 1680, "they are there, too");
}

Test(assemble, parameters_that_replicas_share_count_as_the_whole) {
  using runtime::Kind;
  const auto shard = [](const char* name, Kind kind, std::int64_t from, std::int64_t to) {
    runtime::Entry made = entry(name, 0, kind, 100);
    made.part = runtime::Part::range({0}, {100}, from, to);
    return made;
  };
  const std::vector<runtime::Entry> held{shard("w", Kind::parameter, 25, 50),
                                         shard("m", Kind::moment, 25, 50),
                                         entry("b", 0, Kind::parameter, 10)};
  const RankProfile made = profile_of({}, {}, 4, held, 1000);
  cr_assert_eq(made.layer_param_bytes, 440, "of a fourth of 100 elements, and of 10 whole ones");
  cr_assert_eq(made.layer_state_bytes, 840, "400 of each sharded tensor, and 40");
  cr_assert_eq(made.sharded_state_bytes, 800);
  cr_assert_eq(made.sharded_held_bytes, 200, "a fourth");
  cr_assert_eq(made.sharded_gradient_bytes, 400);
  cr_assert_eq(made.peak_bytes, 1000, "as the program measured it");
  cr_assert_eq(profile_of({}, {}, 4, held, 0).peak_bytes, 380, "what is there: shards");
  // The first shard, and one with padding behind the block.
  cr_assert_eq(profile_of({}, {}, 4, {shard("w", Kind::parameter, 0, 34)}, 0).layer_param_bytes,
               400);
  cr_assert_eq(profile_of({}, {}, 4, {shard("w", Kind::parameter, 68, 102)}, 0).layer_param_bytes,
               400);
}

/// Memory and time at other sizes follow from the whole and the degree, from a profile of shards.
Test(assemble, a_job_that_shards_its_state_is_predicted_at_other_sizes) {
  using runtime::Kind;
  const auto cluster = support::h100_nodes(2, 8, 2e9);
  models::Model model = support::small_model();
  model.layers = 1;
  constexpr std::int64_t kElements = (1 << 20) + 1;  // the last shards have padding
  // `dp` replicas of 4 samples, each with a range of every tensor; `degree` of them the whole.
  const auto profile_at = [&](int dp, int degree) {
    plan::Layout layout{2, {}};
    support::add_stage(layout, 1, 1, dp, 4, 0);
    const plan::Plan plan = plan::name_all(layout, cluster);
    std::vector<RankProfile> ranks;
    for (int rank = 0; rank < dp; ++rank) {
      const auto shard = [&](const char* name, Kind kind) {
        runtime::Entry made = entry(name, 0, kind, kElements);
        const std::int64_t at = rank % degree, each = (kElements + degree - 1) / degree;
        made.part = runtime::Part::range({0}, {kElements}, at * each, (at + 1) * each);
        return made;
      };
      Role role;
      role.group = rank;
      role.local_batch = 4;
      role.activ_bytes = 1000;
      role.whole_activations = 5;
      const double held =
          16.0 * kElements / degree;  // in four bytes: weight, two moments, gradient
      Times times;
      times.fwd_s = 0.004;
      times.bwd_s = 0.008;
      times.optim_s = 0.012 / degree;
      times.commu_extra_s = dp > 1 ? 0.001 : 0;
      ranks.push_back(
          read_rank_profile(write(profile_of(role, times, 2,
                                             {shard("w", Kind::parameter), shard("m", Kind::moment),
                                              shard("v", Kind::moment)},
                                             static_cast<std::uint64_t>(held + 4e6))))
              .value());
    }
    const auto made = assemble(plan, ranks);
    cr_assert(made.ok(), "%s", made.ok() ? "" : made.error().message().c_str());
    return perf::profile_from_json(Json::parse(perf::to_json(*made).dump()).value(), cluster)
        .value();
  };
  const perf::Coefficients four = perf::solve(profile_at(4, 4), cluster).value();
  const perf::PerformanceModel perf(model, cluster, four);
  const perf::MemoryModel memory(perf);
  for (const int dp : {1, 2, 4, 8}) {
    plan::Layout layout{2, {}};
    support::add_stage(layout, 1, 1, dp, 4, 0);
    const perf::PeakMemory peak = memory.stage_peak(layout, 0);
    cr_assert(support::near(peak.total() - peak.overhead, 16.0 * kElements / dp + 4e6, 1e-5),
              "DP %d: %g", dp, peak.total() - peak.overhead);
    const auto times = perf.stage_times(layout.stages[0], {true, true});
    cr_assert(support::near(times.optim, 0.012 / dp, 1e-6), "DP %d: %g", dp, times.optim);
    if (dp > 1)
      cr_assert(support::near(times.dp_commu,
                              perf::dp_commu(4.0 * kElements * 1.5, 1, dp,
                                             perf.stage_bandwidth(layout.stages[0])),
                              1e-6),
                "parameters are gathered twice, gradients scattered once");
  }
  // Where two of four replicas hold the whole (HSDP), more replicas make no smaller shards.
  const perf::Coefficients half = perf::solve(profile_at(4, 2), cluster).value();
  cr_assert_eq(half.max_shards, 2);
  cr_assert(support::near(half.state_part(8), 0.5) && support::near(half.state_part(1), 1));
  // The same tensors, whole on each replica.
  const perf::Coefficients whole = perf::solve(profile_at(4, 1), cluster).value();
  cr_assert_eq(whole.sharded_state, 0);
  cr_assert(support::near(whole.state_part(8), 1));
  cr_assert(support::near(whole.param_optim_bytes, four.param_optim_bytes, 1e-9));
}

// As python/swell/engine/zero.py: after the step replica r of n receives (n - 1) / n of the
// parameters' bytes; test_zero.py counts them. Nothing overlaps that.
Test(assemble, replicas_that_divide_moments_alone_are_predicted_to_gather_parameters) {
  using runtime::Kind;
  const auto cluster = support::h100_nodes(2, 8, 2e9);
  models::Model model = support::small_model();
  model.layers = 1;
  constexpr std::int64_t kElements = 1 << 22;
  const auto layout_of = [](int dp) {
    plan::Layout layout{2, {}};
    support::add_stage(layout, 1, 1, dp, 4, 0);
    return layout;
  };
  constexpr double kBytes = 4.0 * kElements;
  const auto gather_s = [&](int dp) {
    const perf::PerformanceModel any(model, cluster, support::round_coefficients(1));
    return kBytes * (dp - 1) / dp / any.stage_bandwidth(layout_of(dp).stages[0]);
  };
  const auto profile_at = [&](int dp, double sums_left_s) {
    std::vector<RankProfile> ranks;
    for (int rank = 0; rank < dp; ++rank) {
      Role role;
      role.group = rank;
      role.local_batch = 4;
      role.activ_bytes = 1000;
      role.whole_activations = 5;
      Times times;
      times.fwd_s = 0.5e-4;
      times.bwd_s = 1e-4;
      times.optim_s = 0.12 / dp;
      times.commu_extra_s = sums_left_s + gather_s(dp);
      std::vector<runtime::Entry> held{entry("w", 0, Kind::parameter, kElements)};
      for (const char* moment : {"m", "v"}) {
        held.push_back(entry(moment, 0, Kind::moment, kElements));
        held.back().part = runtime::Part::range({0}, {kElements}, rank * kElements / dp,
                                                (rank + 1) * kElements / dp);
      }
      ranks.push_back(profile_of(role, times, 2, held, 80'000'000));
    }
    return assemble(plan::name_all(layout_of(dp), cluster), ranks).value();
  };
  const double left_s = 0.8 * gather_s(2);  // of twice that
  const perf::Coefficients two = perf::solve(profile_at(2, left_s), cluster).value();
  cr_assert(support::near(two.stepped_share(), 1, 1e-6), "%g", two.stepped_share());
  const perf::PerformanceModel perf(model, cluster, two);
  for (const int dp : {1, 2, 4, 8, 16}) {
    const perf::StageTimes times = perf.stage_times(layout_of(dp).stages[0], {true, true});
    const double gathered = dp > 1 ? gather_s(dp) : 0;
    cr_assert(support::near(times.gather, gathered, 1e-6), "DP %d: %g, %g", dp, times.gather,
              gathered);
    cr_assert(support::near(times.optim, 0.12 / dp, 1e-6), "DP %d: %g", dp, times.optim);
    cr_assert(support::near(times.extra(), times.commu_extra + times.optim + gathered, 1e-6));
    if (dp == 2)
      cr_assert(support::near(times.commu_extra, left_s, 1e-6),
                "the gathering that was seen is not taken for sums that nothing overlaps: %g, %g",
                times.commu_extra, left_s);
  }
}

/// solve() finds the same from ranks' reports as from the groups' observations.
Test(assemble, makes_the_profile_that_solve_takes) {
  const auto cluster = support::h100_nodes(2, 8, 2e9);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 5, 2, 2, 4, 0);
  support::add_stage(layout, 3, 2, 2, 4, 1);
  perf::Coefficients truth = support::round_coefficients(1);
  truth.types[0].overlap = 1.7;
  truth.first = {3e8, 2e9, 0};
  truth.last = {3e8, 2e9, 1e8};
  perf::Profile expected = support::observe(layout, support::small_model(), cluster, truth);
  for (auto& seen : expected.groups) seen.weights_s = 0.4 * seen.bwd_s;
  std::vector<RankProfile> ranks;
  std::vector<PlacedRank> placed;
  for (const perf::GroupObservation& seen : expected.groups)
    for (int rank = 0; rank < expected.plan.stages[static_cast<std::size_t>(seen.stage)].tp;
         ++rank) {
      RankProfile one;
      one.role.stage = seen.stage;
      one.role.group = seen.group;
      one.role.activ_bytes = expected.activ_bytes;
      one.role.whole_activations = expected.whole_activations.value_or(0);
      one.role.last_activ_p_bytes = expected.last_activ_p_bytes;
      one.role.tied_embedding = expected.tied_embedding;
      one.micro_batches = expected.plan.micro_batches;
      const plan::Stage& stage = expected.plan.stages[static_cast<std::size_t>(seen.stage)];
      const plan::TpGroup& group = stage.groups[static_cast<std::size_t>(seen.group)];
      one.role.layers = stage.layers;
      one.role.local_batch = group.local_batch;
      const double off = rank % 2 == 0 ? 1.01 : 0.99;  // clocks of two ranks
      one.times = {seen.fwd_s * off,      seen.fwd_commu_s * off,   seen.bwd_s * off,
                   seen.optim_s * off,    seen.commu_extra_s * off, seen.head_fwd_s * off,
                   seen.head_bwd_s * off, seen.weights_s * off};
      one.layer_param_bytes = seen.layer_param_bytes;
      one.layer_state_bytes = seen.layer_state_bytes;
      one.extra_param_bytes = seen.extra_param_bytes;
      one.extra_state_bytes = seen.extra_state_bytes;
      one.peak_bytes = seen.peak_bytes;
      ranks.push_back(read_rank_profile(write(one)).value());
      placed.push_back(
          {group.node, group.gpu_type, {group.gpus[static_cast<std::size_t>(rank)]}, one});
    }
  std::shuffle(ranks.begin(), ranks.end(), std::mt19937(1));
  std::shuffle(placed.begin(), placed.end(), std::mt19937(1));
  cr_assert(plan_of(placed).value() == expected.plan, "the ranks' own words make the plan");
  const auto assembled = assemble(expected.plan, ranks);
  cr_assert(assembled.ok());
  // As it is passed on.
  const auto profile =
      perf::profile_from_json(Json::parse(perf::to_json(*assembled).dump()).value(), cluster);
  cr_assert(profile.ok(), "%s", profile.ok() ? "" : profile.error().message().c_str());
  cr_assert(profile->plan == assembled->plan);
  const auto solved = perf::solve(*profile, cluster);
  cr_assert(solved.ok(), "%s", solved.ok() ? "" : solved.error().message().c_str());
  cr_assert_lt(perf::largest_change(*solved, perf::solve(expected, cluster).value()), 1e-6);
  cr_assert_float_eq(solved->types[0].weights_share, 0.4, 1e-9);
}

Test(assemble, refuses_ranks_of_another_plan_and_bodies_that_are_wrong) {
  const auto cluster = support::h100_nodes(1, 8);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 2, 2, 4, 0);
  const plan::Plan plan = plan::name_all(layout, cluster);
  RankProfile rank;
  rank.role.group = 2;
  rank.micro_batches = plan.micro_batches;
  cr_assert_eq(assemble(plan, {rank}).error().message(),
               "a rank reports as stage 0, group 2; the plan has no such group");
  cr_assert_eq(assemble(plan, {}).error().message(), "no rank has reported a profile");
  rank.role.group = 0;
  cr_assert_eq(assemble(plan, {rank}).error().message(),
               "stage 0, group 0 reports 1 layer; the plan has 8 there");
  rank.role.layers = 8;
  rank.micro_batches = 3;
  cr_assert_eq(assemble(plan, {rank}).error().message(),
               "stage 0, group 0 reports 3 micro-batches a step; the plan has 8");
  rank.times.bwd_s = 3;
  for (const double weights_s : {0.0, 1.5}) {
    rank.times.weights_s = weights_s;
    for (const std::vector<std::int32_t>& chunks : {std::vector<std::int32_t>{}, {5, 5}}) {
      rank.role.chunks = chunks;
      const auto read = read_rank_profile(write(rank));
      cr_assert(read.ok());
      cr_assert(read->role.chunks == chunks && read->times == rank.times);
    }
  }
  rank.times.weights_s = 3.5;
  cr_assert_not(read_rank_profile(write(rank)).ok(), "longer than the backward pass");
  rank.times = {};
  rank.role.chunks.clear();
  std::string body = write(rank);
  cr_assert_not(read_rank_profile(body + "x").ok());
  cr_assert_not(read_rank_profile(body.substr(1)).ok());
  rank.times.fwd_s = -1;
  cr_assert_not(read_rank_profile(write(rank)).ok());
}

namespace {

using perf::NodeObservation;
using perf::NodePass;

/// A rank of a plan of 8 layers with as many nodes as can be, as it is read.
RankProfile with_nodes(double slow = 1) {
  RankProfile rank;
  rank.role.layers = 8;
  rank.role.local_batch = 4;
  rank.role.activ_bytes = 1e6;
  rank.micro_batches = 8;
  rank.times.fwd_s = rank.times.bwd_s = 1;
  rank.layer_param_bytes = rank.layer_state_bytes = rank.peak_bytes = 1e9;
  rank.nodes = {{NodePass::forward, 0, 4, 0.25 * slow, 0.125, 5e8},
                {NodePass::backward, 0, 4, 0.5 * slow, 0.125 * slow, -5e8},
                {NodePass::head_forward, -1, 0, 0.0625 * slow, 0, 0}};
  return rank;
}

}  // namespace

Test(assemble, nodes_of_a_group_are_those_of_its_ranks) {
  const auto cluster = support::h100_nodes(1, 8);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 2, 1, 8, 0);
  const plan::Plan plan = plan::name_all(layout, cluster);
  RankProfile one = with_nodes(), other = with_nodes(3);
  other.nodes.push_back({NodePass::forward, 4, 4, 0.5, 0, 0});
  other.nodes.push_back({NodePass::forward, 6, 4, 0.5, 0, 0});  // layers that the plan lacks
  const auto read = read_rank_profile(write(other));
  cr_assert(read.ok());
  cr_assert(read->nodes == other.nodes, "as they were written");
  const auto assembled = assemble(plan, {one, *read});
  cr_assert(assembled.ok());
  const std::vector<NodeObservation> nodes = assembled->groups[0].nodes;
  const std::vector<NodeObservation> wanted = {
      {NodePass::forward, 0, 4, 0.5, 0.125, 5e8},
      {NodePass::backward, 0, 4, 1, 0.375, -5e8},
      {NodePass::head_forward, -1, 0, 0.125, 0, 0},
      {NodePass::forward, 4, 4, 0.5, 0, 0},
  };
  cr_assert(nodes == wanted);
  const auto profile =
      perf::profile_from_json(Json::parse(perf::to_json(*assembled).dump()).value(), cluster);
  cr_assert(profile.ok(), "%s", profile.ok() ? "" : profile.error().message().c_str());
  cr_assert(profile->groups[0].nodes == wanted, "and as it is passed on");
}

Test(assemble, a_report_with_all_nodes_is_bounded_and_an_older_launcher_reads_the_rest) {
  RankProfile rank = with_nodes();
  rank.role.chunks.assign(kMaxChunksSaid, 1);
  rank.times.weights_s = 0.5;
  rank.nodes.assign(perf::kMaxNodes, rank.nodes.front());
  cr_assert_leq(write(rank).size(), kMaxProfileBytes);
  for (const bool has_weights : {false, true}) {
    rank.times.weights_s = has_weights ? 0.5 : 0;
    const auto read = read_rank_profile(write(rank));
    cr_assert(read.ok());
    cr_assert_eq(read->nodes.size(), perf::kMaxNodes);
    cr_assert_eq(read->times.weights_s, rank.times.weights_s);
  }
  RankProfile brief = rank;
  brief.nodes.clear();
  brief.times.weights_s = 0;
  cr_assert_eq(write_for_older(rank), write(brief));
  brief.role.chunks.clear();
  cr_assert_eq(write(brief).size(), 201u, "what launchers of the first version read");
}

Test(assemble, nodes_that_cannot_be_are_refused) {
  const auto is_read = [](const NodeObservation& node) {
    RankProfile rank = with_nodes();
    rank.nodes.push_back(node);
    return read_rank_profile(write(rank)).ok();
  };
  cr_assert(is_read({NodePass::weights, 4, 4, 0, 0, -1}));
  cr_assert_not(is_read({static_cast<NodePass>(perf::kNodePasses), 4, 4, 1, 0, 0}));
  cr_assert_not(is_read({NodePass::weights, 4, 4, -1, 0, 0}));
  cr_assert_not(is_read({NodePass::weights, 4, 4, 1, -1, 0}));
  cr_assert_not(is_read({NodePass::weights, 4, 4, NAN, 0, 0}));
  cr_assert_not(is_read({NodePass::weights, 4, 4, 1, 0, INFINITY}));
  cr_assert_not(is_read({NodePass::weights, -1, 4, 1, 0, 0}));
  cr_assert_not(is_read({NodePass::weights, 3, 0, 1, 0, 0}));
  cr_assert_not(is_read({NodePass::weights, 3, -1, 1, 0, 0}));
  RankProfile rank = with_nodes();
  const std::string body = write(rank);
  for (std::size_t cut = 1; cut < 60; ++cut)
    cr_assert_not(read_rank_profile(body.substr(0, body.size() - cut)).ok(), "%zu", cut);
  rank.nodes.assign(perf::kMaxNodes + 1, rank.nodes.front());
  cr_assert_not(read_rank_profile(write(rank)).ok());
}

Test(assemble, ranks_that_make_no_plan_are_told_apart) {
  const auto rank = [](int stage, int group, const char* node, int gpu) {
    PlacedRank made{node, "", {gpu}, {}};
    made.profile.role.stage = stage;
    made.profile.role.group = group;
    made.profile.micro_batches = 4;
    return made;
  };
  const auto why = [](const std::vector<PlacedRank>& ranks) {
    const auto plan = plan_of(ranks);
    return plan.ok() ? std::string("a plan") : plan.error().message();
  };
  const PlacedRank first = rank(0, 0, "n1", 0);
  cr_assert_eq(why({first}), "a plan");
  cr_assert_eq(why({}), "no rank has reported a profile");
  cr_assert_eq(why({first, rank(2, 0, "n1", 1)}),
               "stage 2, group 0 reports, and one before it does not");
  cr_assert_eq(why({first, rank(0, 2, "n1", 1)}),
               "stage 0, group 2 reports, and one before it does not");
  cr_assert_eq(why({first, rank(0, 0, "n2", 0)}),
               "stage 0, group 0: ranks on n1 and on n2; a TP group is on one node");
  cr_assert_eq(why({first, rank(0, 1, "n1", 1), rank(0, 1, "n1", 2)}),
               "stage 0, group 1: 2 GPUs; group 0 has 1");
  PlacedRank other = rank(1, 0, "n1", 1);
  other.profile.role.local_batch = 3;
  cr_assert_eq(why({first, other}), "stage 1: 3 samples of a micro-batch; stage 0 has 1");
  other = rank(0, 1, "n1", 1);
  other.profile.role.layers = 3;
  cr_assert_eq(why({first, other}), "stage 0, group 1: 3 layers; another rank of the stage has 1");
}
