// SPDX-License-Identifier: GPL-2.0-or-later
// What goes from stage to stage, worked by hand and against the judge.
#include "core/perf/sends.h"

#include <cmath>
#include <criterion/criterion.h>
#include <vector>

#include "core/perf/chunk_costs.h"
#include "core/planner/evaluator.h"
#include "support/profiles.h"

using namespace swell;
using namespace swell::perf;
using support::near;

namespace {

constexpr double kSample = 1e9;      // bytes
constexpr double kLink = 450e9;      // of an h100
constexpr double kNetwork = 1.25e9;  // 10 Gbit/s a card

/// Groups of one GPU, each on its node with its samples.
plan::StageLayout stage_of(const std::vector<std::pair<int, int>>& nodes_and_samples) {
  plan::StageLayout stage{4, 1, {}};
  plan::GpuMask gpu = 1;
  for (const auto& [node, samples] : nodes_and_samples) {
    stage.groups.push_back({node, 0, samples, gpu});
    gpu <<= 1;
  }
  return stage;
}

double sent(const std::vector<std::pair<int, int>>& from,
            const std::vector<std::pair<int, int>>& to) {
  return send_s(stage_of(from), stage_of(to), kSample, support::h100_nodes(2, 8, 8 * kNetwork));
}

IterationTime sum_of(const std::vector<StageTimes>& stages, const std::vector<double>& sends,
                     double micro_batches) {
  SendingPipelineSum sum;
  for (std::size_t i = 0; i < stages.size(); ++i) sum.add(stages[i], i > 0 ? sends[i - 1] : 0);
  return sum.finish(micro_batches);
}

/// Forward and backward together.
StageTimes passes(double seconds) { return {seconds / 2, seconds / 2, 0, 0, 0}; }

}  // namespace

Test(sends, aligned_groups_send_each_its_own_samples) {
  cr_assert(near(sent({{0, 2}, {0, 2}}, {{0, 2}, {0, 2}}), 2 * kSample / kLink));
  cr_assert(near(sent({{0, 2}, {1, 2}}, {{0, 2}, {1, 2}}), 2 * kSample / kLink), "nothing crosses");
  cr_assert(near(sent({{0, 3}}, {{1, 3}}), 3 * kSample / kNetwork));
}

Test(sends, unequal_groups_send_what_both_work_on) {
  // 3 : 1 to 2 : 2: two samples stay on node 0, the third goes to node 1, where the fourth is
  // already.
  cr_assert(near(sent({{0, 3}, {1, 1}}, {{0, 2}, {1, 2}}), kSample / kNetwork));
  cr_assert(near(sent({{0, 2}, {1, 2}}, {{0, 3}, {1, 1}}), kSample / kNetwork), "and back");
  cr_assert(near(sent({{0, 1}, {1, 3}}, {{0, 2}, {1, 2}}), kSample / kNetwork),
            "the second from node 1");
  cr_assert(near(sent({{0, 3}, {0, 1}}, {{0, 2}, {0, 2}}), 2 * kSample / kLink),
            "the largest share is the last to arrive");
  cr_assert(near(sent({{0, 4}}, {{0, 1}, {0, 1}, {1, 2}}), 2 * kSample / kNetwork));
  cr_assert(near(sent({{0, 1}, {0, 1}, {1, 2}}, {{0, 4}}), 2 * kSample / kNetwork));
}

Test(sends, a_group_sends_over_the_cards_of_all_its_gpus) {
  plan::StageLayout from{4, 4, {{0, 0, 2, 0x0f}}}, to{4, 4, {{1, 0, 2, 0x0f}}};
  const auto cluster = support::h100_nodes(2, 8, 8 * kNetwork);
  cr_assert(near(send_s(from, to, kSample, cluster), 2 * kSample / (4 * kNetwork)));
  to = {4, 2, {{1, 0, 2, 0x03}}};
  cr_assert(near(send_s(from, to, kSample, cluster), 2 * kSample / (2 * kNetwork)),
            "the smaller group limits it");
}

Test(sends, cp_ranks_send_their_own_tokens_over_the_cards_of_their_group) {
  // TP 2 x CP 2: each CP rank has half of the tokens, kSample in bytes. Both go over four cards.
  const plan::StageLayout from{4, 4, {{0, 0, 2, 0x0f}}}, to{4, 4, {{1, 0, 2, 0x0f}}};
  const auto cluster = support::h100_nodes(2, 8, 8 * kNetwork);
  cr_assert(near(send_s(from, to, kSample, cluster, 2), 2 * 2 * kSample / (4 * kNetwork)));
  const plan::StageLayout beside{4, 4, {{0, 0, 2, 0xf0}}};
  cr_assert(near(send_s(from, beside, kSample, cluster, 2), 2 * kSample / kLink),
            "within a node each has a link");
}

Test(sends, the_model_counts_what_all_cp_ranks_send) {
  // The same bytes cross whether one GPU has all tokens or each of two has half.
  models::Model model = support::small_model(8);
  const auto cluster = support::h100_nodes(2, 8, 8 * kNetwork);
  const auto seconds_of = [&](int cp) {
    model.cp = cp;
    auto k = support::round_coefficients();
    k.activ_bytes = 1e9 / cp;
    plan::Layout layout{8, {}};
    support::add_stage(layout, 4, 2, 1, 8, 0);
    support::add_stage(layout, 4, 2, 1, 8, 1);
    const perf::PerformanceModel counted(model, cluster, k, Sends::counted),
        ignored(model, cluster, k, Sends::ignored);
    const auto added = [&] {
      return counted.iteration_time(layout).total() - ignored.iteration_time(layout).total();
    };
    const double plain = added();
    for (plan::StageLayout& stage : layout.stages) stage.chunks = {3, 2};  // 10 units
    layout.stages[0].layers = layout.stages[1].layers = 4;
    return std::pair(plain, chunk_costs(counted, layout).chunks[0].send_forward_s);
  };
  const auto whole = seconds_of(1), halves = seconds_of(2);
  cr_assert_gt(whole.first, 0);
  cr_assert_gt(whole.second, 0);
  cr_assert(near(whole.first, halves.first, 1e-6), "%g and %g", whole.first, halves.first);
  cr_assert(near(whole.second, halves.second), "%g and %g", whole.second, halves.second);
}

Test(sends, the_slower_type_limits_a_send_within_a_node) {
  const auto cluster = support::mixed_nodes(4, 4);
  plan::StageLayout from = stage_of({{0, 2}}), to = stage_of({{0, 2}});
  to.groups[0].type = 1;
  cr_assert(
      near(send_s(from, to, kSample, cluster), 2 * kSample / cluster.type(1).link_bytes_per_s));
  cr_assert_lt(cluster.type(1).link_bytes_per_s, kLink);
}

Test(sends, a_pipeline_with_sends_by_hand) {
  const std::vector<StageTimes> stages = {{1, 2, 0, 0.5, 0.1}, {2, 3, 0, 4, 0.2}};
  const IterationTime short_send = sum_of(stages, {0.5}, 5);
  cr_assert(near(short_send.warm_up, 3 + 5 + 2 * 0.5), "there and back");
  cr_assert(near(short_send.steady, 4 * 5.0),
            "the slower stage: both together take (3 + 5 + 1) / 2");
  cr_assert(near(short_send.extra, 4.2 - 2 - 0.5),
            "stage 1 ends a backward pass and a send before stage 0");
  const IterationTime long_send = sum_of(stages, {3}, 5);
  cr_assert(near(long_send.warm_up, 3 + 5 + 2 * 3));
  cr_assert(near(long_send.steady, 4 * 7.0), "(3 + 5 + 6) / 2");
  cr_assert(near(long_send.extra, 0.6), "stage 0's own");
}

Test(sends, the_period_is_the_largest_mean_over_stages_next_to_each_other) {
  const auto period = [](const std::vector<double>& comp, const std::vector<double>& sends) {
    std::vector<StageTimes> stages;
    for (double seconds : comp) stages.push_back(passes(seconds));
    return sum_of(stages, sends, 2).steady;
  };
  cr_assert(near(period({2, 6, 6}, {1, 4}), (6 + 6 + 2 * 4) / 2.0), "the last two");
  cr_assert(near(period({6, 6, 2}, {4, 1}), (6 + 6 + 2 * 4) / 2.0), "the first two");
  cr_assert(near(period({4, 1, 4}, {3, 3}), (4 + 1 + 4 + 2 * 6) / 3.0), "all three");
  cr_assert(near(period({4, 9, 4}, {1, 1}), 9), "one alone");
}

Test(sends, without_sends_the_sum_is_that_of_the_equations) {
  const std::vector<StageTimes> stages = {
      {1, 2, 0, 0.5, 0.1}, {2, 3, 0, 4, 0.2}, {1, 1, 0, 7, 0.3}};
  PipelineSum free;
  for (const StageTimes& stage : stages) free.add(stage);
  const IterationTime with = sum_of(stages, {0, 0}, 5), without = free.finish(5);
  cr_assert(near(with.warm_up, without.warm_up));
  cr_assert(near(with.steady, without.steady));
  cr_assert(near(with.extra, without.extra));
}

Test(sends, pipelines_deeper_than_any_are_summed_too) {
  std::vector<StageTimes> stages(300, passes(1));
  const IterationTime time = sum_of(stages, std::vector<double>(299, 0.1), 11);
  cr_assert(near(time.warm_up, 300 + 299 * 0.2));
  cr_assert(time.steady >= 10 && time.steady <= 10 * 1.2, "%g", time.steady);
}

Test(sends, a_plan_of_one_stage_has_none) {
  const auto model = support::small_model();
  const auto cluster = support::h100_nodes(2, 8, 8 * kNetwork);
  const auto k = support::round_coefficients();
  plan::Layout one{8, {}}, two{8, {}};
  support::add_stage(one, 8, 1, 4, 2);
  support::add_stage(two, 4, 1, 2, 4, 0);
  support::add_stage(two, 4, 1, 2, 4, 1);
  const PerformanceModel free(model, cluster, k), counted(model, cluster, k, Sends::counted);
  cr_assert(near(counted.iteration_time(one).total(), free.iteration_time(one).total()));
  const double send = 4 * k.activ_bytes / kNetwork;
  cr_assert(near(counted.iteration_time(two).warm_up, free.iteration_time(two).warm_up + 2 * send));
}

Test(sends, two_allocations_on_one_node_reach_each_other_over_the_network) {
  const cluster::Cluster machines = support::h100_nodes(2, 8, 8 * kNetwork);
  plan::StageLayout lent = stage_of({{0, 3}});
  lent.groups[0].part = 1;
  cr_assert(
      near(send_s(stage_of({{0, 3}}), stage_of({{0, 3}}), kSample, machines), 3 * kSample / kLink));
  cr_assert(near(send_s(stage_of({{0, 3}}), lent, kSample, machines), 3 * kSample / kNetwork));
  cr_assert(near(machines.effective_bandwidth({0, 0}, {0, 1}), kLink));
  cr_assert(near(machines.effective_bandwidth({0, 0}, {0, 1, 1}), kNetwork));

  const models::Model model = support::small_model();
  const perf::Coefficients coefficients = support::round_coefficients();
  const PerformanceModel perf(model, machines, coefficients);
  plan::StageLayout stage = stage_of({{0, 1}, {0, 1}, {0, 1}, {0, 1}});
  cr_assert(near(perf.stage_bandwidth(stage), kLink));
  stage.groups[2].part = stage.groups[3].part = 1;
  cr_assert(near(perf.stage_bandwidth(stage), 2 * kNetwork), "two cards of each");
  std::swap(stage.groups[1], stage.groups[2]);
  cr_assert(near(perf.stage_bandwidth(stage), 2 * kNetwork), "in any order");
}
