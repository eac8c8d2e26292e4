// SPDX-License-Identifier: GPL-2.0-or-later
// Every equation of Suika's appendix A.2, worked by hand.
#include "core/perf/equations.h"

#include <cmath>
#include <criterion/criterion.h>
#include <random>
#include <vector>

#include "core/perf/performance_model.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::perf;
using support::near;

Test(equations, tp_computation_is_linear_in_layers_samples_and_inverse_tp) {
  cr_assert(near(tp_comp_fwd(2e-3, 3, 10, 4), 2e-3 * 30 / 4));
}

Test(equations, tp_volume_and_bandwidth_saturation) {
  // 1 MiB activations, 4 samples, TP 2: V' = 4 MiB * 2 * 1/2 = 2^22 bytes.
  cr_assert(near(tp_transmission_bytes(1 << 20, 4, 2), 1 << 22));
  cr_assert(near(tp_bandwidth(450e9, 1 << 22, 1 << 26), 450e9 * 22 / 26),
            "log2 V' over log2 of the saturation size");
  cr_assert(near(tp_bandwidth(450e9, 1 << 27, 1 << 26), 450e9), "not above the link");
  // 10 layers, two all-reduces each: 20 * 4 MiB over that bandwidth.
  cr_assert(
      near(tp_commu_fwd(1 << 20, 4, 10, 2, 450e9, 1 << 26), 20.0 * (1 << 22) / (450e9 * 22 / 26)));
  cr_assert_eq(tp_commu_fwd(1 << 20, 4, 10, 1, 450e9, 1 << 26), 0);
}

Test(equations, dp_synchronization_is_a_ring_over_the_dp_degree) {
  // 1e8 bytes a layer, 10 layers, DP 4: 1e9 * 2 * 3/4 bytes over 1e10 bytes a second.
  cr_assert(near(dp_commu(1e8, 10, 4, 1e10), 0.15));
  cr_assert_eq(dp_commu(1e8, 10, 1, 1e10), 0);
}

Test(equations, overlap_exponent_goes_from_none_to_all) {
  cr_assert(near(dp_commu_extra(4, 3, 1), 3), "1: nothing overlaps");
  cr_assert(near(dp_commu_extra(4, 3, 2), 1), "2: sqrt(16 + 9) - 4");
  cr_assert_lt(dp_commu_extra(4, 3, 60), 1e-6, "large: the shorter one is hidden");
  cr_assert(near(dp_commu_extra(3, 4, 200), 1, 1e-3), "large: what is longer shows");
  cr_assert_eq(dp_commu_extra(4, 0, 2), 0);
}

Test(equations, one_forward_one_backward_pipeline) {
  const std::vector<StageTimes> stages = {{1, 2, 0, 0.5, 0.1}, {2, 3, 0, 4, 0.2}};
  PipelineSum sum;
  for (const StageTimes& stage : stages) sum.add(stage);
  const IterationTime time = sum.finish(5);
  cr_assert(near(time.warm_up, 8), "3 + 5");
  cr_assert(near(time.steady, 20), "4 more micro-batches of the slower stage");
  cr_assert(near(time.extra, 2.2), "stage 1 ends 2 s before stage 0: max(0.6, 4.2 - 2)");
  cr_assert(near(time.total(), 30.2));
}

Test(performance_model, a_whole_plan_by_hand) {
  const auto model = support::small_model(8, 64);
  const auto cluster = support::h100_nodes(2, 8, 1e10);
  auto k = support::round_coefficients();
  k.types[0].overlap = 2;
  plan::Layout layout{8, {}};
  support::add_stage(layout, 5, 2, 2, 4, 0);
  support::add_stage(layout, 3, 4, 1, 8, 1);
  const PerformanceModel perf(model, cluster, k);
  // Stage 0: 1e-3 * 4 * 5 / 2 = 10 ms; V' = 2^20 * 4 * 2 * 1/2 = 2^22 bytes, ten all-reduces.
  const double commu0 = 10 * 4194304 / (450e9 * 22 / 26);
  const StageTimes first = perf.stage_times(layout.stages[0]);
  cr_assert(near(first.fwd, 0.010 + commu0));
  cr_assert(near(first.bwd, 0.020 + commu0));
  cr_assert(near(first.optim, 4e-3 * 5 / 2));
  // Two groups of two on one node: 5e8 * 2 * 1/2 bytes over two links.
  const double sync = 5e8 / 900e9;
  cr_assert(near(first.dp_commu, sync));
  cr_assert(
      near(first.commu_extra, std::sqrt(first.bwd * first.bwd + sync * sync) - first.bwd, 1e-6));
  // Stage 1: 1e-3 * 8 * 3 / 4 = 6 ms; V' = 2^20 * 8 * 2 * 3/4 = 12 MiB, six all-reduces.
  const double commu1 = 6 * 12582912.0 / (450e9 * std::log2(12582912.0) / 26);
  const StageTimes second = perf.stage_times(layout.stages[1]);
  cr_assert(near(second.fwd, 0.006 + commu1));
  cr_assert_eq(second.commu_extra, 0);
  const double expected = first.comp() + second.comp() + 7 * first.comp() + first.extra();
  cr_assert(near(perf.iteration_time(layout).total(), expected));
  cr_assert(near(perf.throughput(layout), 64 / expected));
}

Test(performance_model, a_group_with_cp_computes_and_reduces_its_own_tokens) {
  models::Model whole = support::small_model();
  models::Model split = whole;
  split.cp = 2;
  const auto cluster = support::h100_nodes(2);
  const Coefficients k = expected_coefficients(whole, cluster),
                     shared = expected_coefficients(split, cluster);
  const PerformanceModel perf(whole, cluster, k), with_cp(split, cluster, shared);
  // Groups of 4 GPUs, TP 2: all-reduces are of two GPUs, and of half the tokens.
  const auto bytes = tp_transmission_bytes(k.activ_bytes / 2, 4, 2);
  const auto& gpu = cluster.type(0);
  const double once = bytes / tp_bandwidth(gpu.link_bytes_per_s, bytes, gpu.link_saturation_bytes);
  cr_assert(support::near(with_cp.layer_commu(0, 4, 4), 2 * once));
  cr_assert_eq(with_cp.layer_commu(0, 2, 4), 0, "TP 1");
  cr_assert(support::near(with_cp.layer_passes(0, 2, 4).fwd, perf.layer_passes(0, 1, 4).fwd / 2));
  // A single group of CP 2 sums its gradients within itself; they are whole on each rank.
  plan::StageLayout stage{4, 2, {{0, 0, 4, 0b11}}};
  const StageTimes times = with_cp.stage_times(stage);
  const double volume = 4 * 2 * whole.layer_parameters();  // layers, bytes
  cr_assert(support::near(times.dp_commu, volume * 2 * (1 - 0.5) / gpu.link_bytes_per_s));
  cr_assert(support::near(times.optim, 4 * k.types[0].optim_s));
  stage.tp = 1;
  cr_assert_eq(perf.stage_times(stage).dp_commu, 0);
}

Test(performance_model, the_slowest_group_and_type_hold_up_a_stage) {
  const auto model = support::small_model();
  const auto cluster = support::mixed_nodes(4, 4);
  const auto k = support::round_coefficients(2);  // type 1 takes twice as long
  plan::Layout layout{8, {{8, 1, {{0, 0, 5, 1}, {1, 1, 3, 1}}}}};
  const PerformanceModel perf(model, cluster, k);
  cr_assert(near(perf.stage_times(layout.stages[0]).fwd, 2e-3 * 3 * 8),
            "3 samples at 2 ms exceed 5 at 1 ms");
  layout.stages[0].groups[0].local_batch = 7;
  layout.stages[0].groups[1].local_batch = 1;
  cr_assert(near(perf.stage_times(layout.stages[0]).fwd, 1e-3 * 7 * 8));
}

Test(performance_model, the_gradient_ring_runs_at_its_slowest_pair) {
  const auto k = support::round_coefficients();
  const auto model = support::small_model();
  using namespace swell::cluster;
  const auto h100 = *find_gpu_type("h100");
  const Cluster racks =
      Cluster::make("c", {h100},
                    {{"a", 0, {0, 0, 0, 0}, 2e10}, {"b", 0, {0, 0}, 1e10}, {"d", 1, {0, 0}, 3e10}},
                    {0.5})
          .value();
  const PerformanceModel perf(model, racks, k);
  const auto bandwidth = [&](const PerformanceModel& p, std::vector<int> nodes) {
    plan::StageLayout stage{1, 1, {}};
    for (int node : nodes) stage.groups.push_back({node, 0, 1, 1});
    return p.stage_bandwidth(stage);
  };
  cr_assert_eq(bandwidth(perf, {0, 0}), 450e9);
  cr_assert_eq(bandwidth(perf, {0, 0, 0, 0, 1, 1}), 1e10);
  cr_assert_eq(bandwidth(perf, {0, 1}), 5e9, "one card of four, one of two");
  cr_assert_eq(bandwidth(perf, {0, 0, 0, 0, 2, 2}), 1e10, "across racks: half of 20 GB/s");
  cr_assert_eq(bandwidth(perf, {0, 0, 0, 0, 1, 1, 2, 2}), 0.5e10);
  const Cluster measured =
      Cluster::make("c", {h100}, racks.nodes(), {0.5, {{{0, 1}, 3e9}}}).value();
  cr_assert_eq(bandwidth(PerformanceModel(model, measured, k), {0, 0, 0, 0, 1, 1, 2, 2}), 3e9);
}

// An entry about two other nodes changes the way in which the slowest pair is found, not the
// pair.
Test(performance_model, an_injected_error_is_another_one_for_each_plan) {
  const cluster::Cluster cluster = support::h100_nodes(2, 8);
  const models::Model model = support::small_model(8, 64);
  Coefficients exact = support::round_coefficients(), off = exact;
  off.plan_error = 0.2;
  off.plan_error_seed = 7;
  const PerformanceModel truth(model, cluster, exact), wrong(model, cluster, off);
  std::vector<double> factors;
  double squares = 0;
  for (int layers = 1; layers < 8; ++layers)
    for (int micro_batches : {1, 2, 4, 8, 16, 32}) {
      plan::Layout layout{micro_batches,
                          {{layers, 1, {{0, 0, 64 / micro_batches, 1}}},
                           {8 - layers, 1, {{0, 0, 64 / micro_batches, 2}}}}};
      const double factor =
          wrong.iteration_time(layout).total() / truth.iteration_time(layout).total();
      plan::Layout elsewhere = layout;
      for (auto& stage : elsewhere.stages) stage.groups[0].node = 1;
      cr_assert(
          near(wrong.iteration_time(elsewhere).total(), wrong.iteration_time(layout).total()));
      factors.push_back(factor);
      squares += (factor - 1) * (factor - 1);
    }
  const double deviation = std::sqrt(squares / static_cast<double>(factors.size()));
  cr_assert(deviation > 0.1 && deviation < 0.3, "%g", deviation);
  cr_assert_neq(factors[0], factors[1]);
}

Test(performance_model, a_measured_pair_elsewhere_changes_no_stage) {
  using namespace swell::cluster;
  std::mt19937 random(1);
  const auto below = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  const auto k = support::round_coefficients(3);
  const auto model = support::small_model();
  const std::vector<GpuType> types = {*find_gpu_type("h100"), *find_gpu_type("l20"),
                                      *find_gpu_type("v100")};
  int slower_links = 0;
  for (int round = 0; round < 10000; ++round) {
    std::vector<Node> nodes;
    for (int n = 0; n < 6; ++n) {
      Node node{
          "n" + std::to_string(n), below(2), {}, 1e9 * (1 + below(400)), below(2) * (1 + below(8)),
          below(4) == 0 ? 20e9 : 0};
      const int type = below(3);
      for (int g = 0; g < 8; ++g) node.gpus.push_back(below(4) == 0 ? below(3) : type);
      nodes.push_back(node);
    }
    const Cluster regular = Cluster::make("c", types, nodes, {0.5}).value();
    const Cluster pairwise = Cluster::make("c", types, nodes, {0.5, {{{4, 5}, 1e9}}}).value();
    plan::StageLayout stage{1, 1 << below(3), {}};
    for (int n = 0; n < 4; ++n)
      for (int g = 0; g + stage.tp <= 8; g += stage.tp)
        if (below(3) > 0)
          stage.groups.push_back(
              {n, regular.type_of({n, g}), 1, ((plan::GpuMask{1} << stage.tp) - 1) << g});
    if (stage.dp() < 2) continue;
    if (below(2) == 0) std::shuffle(stage.groups.begin(), stage.groups.end(), random);
    auto wide = k;
    wide.types.resize(regular.types().size(), k.types[0]);
    const double fast = PerformanceModel(model, regular, wide).stage_bandwidth(stage);
    const double each = PerformanceModel(model, pairwise, wide).stage_bandwidth(stage);
    cr_assert(near(fast, each), "round %d: %g, %g", round, fast, each);
    slower_links += stage.groups.front().node != stage.groups.back().node &&
                    fast >= stage.tp * 19e9 && fast <= stage.tp * 151e9;
  }
  cr_assert_gt(slower_links, 100);
}

// Fig. 3: 4 + 4 GPUs as two stages of 2 DP groups with TP 2; 2 more GPUs of node 2 join stage 2 as
// a third DP group, and layers move to it: 22 % more, where no symmetric plan gains.
Test(performance_model, figure_3_an_asymmetric_plan_gains_22_percent) {
  auto model = support::small_model(32, 192);
  const auto cluster = support::h100_nodes(2, 8);
  const auto k = support::round_coefficients();
  const PerformanceModel perf(model, cluster, k);
  plan::Layout before{16, {}}, after{16, {}}, sym_pp5{16, {}};
  support::add_stage(before, 16, 2, 2, 6, 0);
  support::add_stage(before, 16, 2, 2, 6, 1);
  support::add_stage(after, 13, 2, 2, 6, 0);
  support::add_stage(after, 19, 2, 3, 4, 1);
  const double gain = perf.throughput(after) / perf.throughput(before);
  cr_assert(gain > 1.20 && gain < 1.24, "%g", gain);
  for (int i = 0; i < 5; ++i)
    support::add_stage(sym_pp5, i < 2 ? 7 : 6, 2, 1, 12, i < 2 ? 0 : 1, 2 * (i < 2 ? i : i - 2));
  cr_assert_gt(perf.throughput(after), 1.2 * perf.throughput(sym_pp5));
}
