// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/redeploy/redeployment.h"

#include <criterion/criterion.h>

#include "core/models/catalogue.h"
#include "core/redeploy/measured.h"
#include "core/redeploy/state_moves.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::redeploy;
using support::near;

namespace {

/// 7e8 bytes a layer, 8 layers.
constexpr double kLayer = 7e8, kWhole = 8 * kLayer;

plan::Layout one_stage(int tp, int dp, int node = 0, int first = 0) {
  plan::Layout layout{4, {}};
  support::add_stage(layout, 8, tp, dp, 1, node, first);
  return layout;
}

StateMoves moves(const plan::Layout& from, const plan::Layout& to) {
  return state_moves(support::round_coefficients(), from, to, support::h100_nodes(2));
}

double pause(Method method, const plan::Layout& from, const plan::Layout& to) {
  return cost_of(method, support::round_coefficients(), from, to, support::h100_nodes(2)).pause_s;
}

}  // namespace

Test(state_moves, a_new_replica_gets_everything_and_the_old_one_keeps_it) {
  const StateMoves more = moves(one_stage(1, 1), one_stage(1, 2));
  cr_assert(near(more.whole_bytes, kWhole));
  cr_assert(near(more.max_local_bytes, kWhole));
  cr_assert(near(more.remote_bytes, kWhole));
  cr_assert(near(more.link_s, kWhole / 450e9), "over NVLink: %g s", more.link_s);
}

Test(state_moves, a_gpu_is_sent_only_what_it_lacks) {
  // Two halves of each layer on GPUs 0 and 1, then all of each on GPU 0.
  const StateMoves merged = moves(one_stage(2, 1), one_stage(1, 1));
  cr_assert(near(merged.max_local_bytes, kWhole / 2));
  cr_assert(near(merged.remote_bytes, kWhole / 2));
}

Test(state_moves, layers_move_with_their_stage) {
  plan::Layout two{4, {}};
  support::add_stage(two, 6, 1, 1, 1, 0, 0);
  support::add_stage(two, 2, 1, 1, 1, 0, 1);
  const StateMoves split = moves(one_stage(1, 1), two);
  cr_assert(near(split.max_local_bytes, 6 * kLayer));
  cr_assert(near(split.remote_bytes, 2 * kLayer));
}

Test(state_moves, giving_a_replica_back_sends_nothing) {
  const StateMoves less = moves(one_stage(1, 4), one_stage(1, 2));
  cr_assert(near(less.remote_bytes, 0));
  cr_assert(near(less.max_local_bytes, kWhole));
}

Test(state_moves, replicas_that_share_the_state_move_their_parts_alone) {
  perf::Coefficients sharded = support::round_coefficients();
  sharded.sharded_state = 1;
  const auto moved = [&](const plan::Layout& from, const plan::Layout& to) {
    return state_moves(sharded, from, to, support::h100_nodes(2));
  };
  const StateMoves more = moved(one_stage(1, 2), one_stage(1, 4));
  cr_assert(near(more.max_had_bytes, kWhole / 2));
  cr_assert(near(more.max_needed_bytes, kWhole / 4));
  cr_assert(near(more.max_local_bytes, kWhole / 4), "the first keeps half of its half");
  cr_assert(near(more.remote_bytes, 3 * kWhole / 4), "%g", more.remote_bytes);
  const StateMoves less = moved(one_stage(1, 2), one_stage(1, 1));
  cr_assert(near(less.max_needed_bytes, kWhole) && near(less.remote_bytes, kWhole / 2));
  sharded.max_shards = 2;  // of eight replicas, four have each half
  const StateMoves hybrid = moved(one_stage(1, 2), one_stage(1, 8));
  cr_assert(near(hybrid.max_needed_bytes, kWhole / 2));
  cr_assert(near(hybrid.remote_bytes, 6 * kWhole / 2), "%g", hybrid.remote_bytes);
}

Test(state_moves, between_nodes_the_network_counts_and_replicas_share_the_sending) {
  // Two replicas of node 1 send one copy each to node 2; a GPU has an eighth of its node's cards.
  plan::Layout to = one_stage(1, 2);
  for (int gpu = 0; gpu < 2; ++gpu)
    to.stages[0].groups.push_back({1, 0, 1, plan::GpuMask{1} << gpu});
  const StateMoves out = moves(one_stage(1, 2), to);
  cr_assert(near(out.remote_bytes, 2 * kWhole));
  cr_assert(near(out.link_s, kWhole / 50e9), "%g s", out.link_s);
}

Test(state_moves, cp_ranks_hold_the_same_and_are_sent_it_once_each) {
  // TP 1 x CP 2. Coefficients are sums over both, so one copy is half of them.
  const Ranks cp{2, 1, 0};
  const auto moves = [&](const plan::Layout& from, const plan::Layout& to) {
    return state_moves(support::round_coefficients(), from, to, support::h100_nodes(2), cp);
  };
  const StateMoves more = moves(one_stage(2, 1), one_stage(2, 2));
  cr_assert(near(more.whole_bytes, kWhole / 2));
  cr_assert(near(more.max_had_bytes, kWhole / 2));
  cr_assert(near(more.max_needed_bytes, kWhole / 2));
  cr_assert(near(more.remote_bytes, kWhole), "two new GPUs get one copy each: %g",
            more.remote_bytes);
  cr_assert(near(more.link_s, kWhole / 2 / 450e9), "from two senders: %g s", more.link_s);
  // A stage on other GPUs of the same group width: one GPU of the two keeps what it has.
  const StateMoves shifted = moves(one_stage(2, 1), one_stage(2, 1, 0, 1));
  cr_assert(near(shifted.remote_bytes, kWhole / 2), "%g", shifted.remote_bytes);
  cr_assert(near(shifted.max_local_bytes, kWhole / 2));
  cr_assert(near(moves(one_stage(2, 2), one_stage(2, 1)).remote_bytes, 0));
}

Test(state_moves, tp_ranks_of_a_cp_group_hold_shards) {
  // TP 2 x CP 2 to TP 1 x CP 2: GPUs 0 and 1 have halves, and each gets the other one.
  const StateMoves merged = state_moves(support::round_coefficients(), one_stage(4, 1),
                                        one_stage(2, 1), support::h100_nodes(2), {2, 1, 0});
  cr_assert(near(merged.max_had_bytes, kWhole / 4));
  cr_assert(near(merged.max_needed_bytes, kWhole / 2));
  cr_assert(near(merged.max_local_bytes, kWhole / 4));
  cr_assert(near(merged.remote_bytes, 2 * kWhole / 4), "%g", merged.remote_bytes);
}

Test(state_moves, ep_ranks_hold_different_experts) {
  // Experts are half of what a rank holds of a layer, and EP 2 has two such halves.
  const Ranks ep{1, 2, 0.5};
  const auto moves = [&](const plan::Layout& from, const plan::Layout& to) {
    return state_moves(support::round_coefficients(), from, to, support::h100_nodes(2), ep);
  };
  const StateMoves more = moves(one_stage(1, 2), one_stage(1, 4));
  cr_assert(near(more.whole_bytes, 1.5 * kWhole), "%g", more.whole_bytes);
  cr_assert(near(more.max_had_bytes, kWhole));
  cr_assert(near(more.remote_bytes, 2 * kWhole), "%g", more.remote_bytes);
  // GPU 1, which was rank 1 of EP, becomes rank 0: the experts of rank 0 are new to it.
  const StateMoves shifted = moves(one_stage(1, 2), one_stage(1, 2, 0, 1));
  cr_assert(near(shifted.max_local_bytes, kWhole / 2), "%g", shifted.max_local_bytes);
  cr_assert(near(shifted.remote_bytes, 1.5 * kWhole), "%g", shifted.remote_bytes);
  cr_assert(near(moves(one_stage(1, 4), one_stage(1, 2)).remote_bytes, 0));
}

Test(state_moves, the_share_of_experts_is_the_models) {
  models::Model model = support::small_model();
  model.moe = {8, 2, 1, 1024};
  const double expert = 3.0 * 1024 * 1024;
  model.gated_mlp = true;
  cr_assert_eq(ranks_of(model), (Ranks{1, 1, 0}));
  model.ep = 4;
  model.cp = 2;
  const Ranks ranks = ranks_of(model);
  cr_assert_eq(ranks.cp, 2);
  cr_assert_eq(ranks.ep, 4);
  cr_assert(near(ranks.experts, 2 * expert / model.held_layer_parameters()), "%g", ranks.experts);
  // All ranks of EP together hold one whole model, and no byte twice.
  const auto cluster = support::h100_nodes(2);
  const auto k = perf::expected_coefficients(model, cluster);
  const StateMoves moves =
      state_moves(k, one_stage(2, 2), one_stage(2, 2), cluster, ranks_of(model));
  const double embeddings = (k.first.param_optim_bytes + k.last.param_optim_bytes) / 2;
  cr_assert(near((moves.whole_bytes - embeddings) / 8, 6 * model.layer_parameters(), 1e-6),
            "%g and %g", (moves.whole_bytes - embeddings) / 8, 6 * model.layer_parameters());
}

Test(redeployment, cp_and_ep_of_the_model_count_in_the_pause) {
  const auto cluster = support::h100_nodes(2);
  const auto k = support::round_coefficients();
  const auto pause = [&](const Ranks& ranks) {
    return cost_of(Method::checkpoint, k, one_stage(2, 1), one_stage(2, 2), cluster, ranks).pause_s;
  };
  // One copy a GPU of half the coefficients, or two halves: each GPU holds as much.
  cr_assert(near(pause({}), pause({2, 1, 0})));
  // GPU 1 stays, as another rank of EP: half of what it has is not what it needs.
  const auto live = [&](const Ranks& ranks) {
    return cost_of(Method::local_reuse, k, one_stage(1, 2), one_stage(1, 2, 0, 1), cluster, ranks)
        .pause_s;
  };
  cr_assert(near(live({}) - live({1, 2, 0.5}), kWhole / 2 / 7.5e9, 0.05), "%g and %g", live({}),
            live({1, 2, 0.5}));
}

Test(redeployment, the_same_plan_costs_nothing) {
  cr_assert_eq(pause(Method::checkpoint, one_stage(1, 2), one_stage(1, 2)), 0);
}

Test(redeployment, a_start_costs_the_initialization) {
  cr_assert_gt(pause(Method::local_reuse, {}, one_stage(1, 2)), 10);
}

Test(redeployment, overlap_moves_the_initialization_out_of_the_pause) {
  const plan::Layout from = one_stage(1, 1), to = one_stage(1, 2);
  const auto cost = [&](Method method) {
    return cost_of(method, support::round_coefficients(), from, to, support::h100_nodes(2));
  };
  cr_assert_eq(cost(Method::checkpoint).delay_s, 0);
  cr_assert_gt(cost(Method::checkpoint_overlap).delay_s, 10);
  cr_assert_lt(cost(Method::checkpoint_overlap).pause_s, cost(Method::checkpoint).pause_s);
}

Test(redeployment, each_of_suikas_techniques_makes_the_pause_shorter) {
  // LLaMA2-13B from 16 to 24 GPUs, as in Suika's Fig. 14b.
  const auto model = models::find_model("llama2-13b").value().model;
  const auto cluster = cluster::preset("8x8-h100").value();
  const auto coefficients = perf::expected_coefficients(model, cluster);
  plan::Layout from{16, {{40, 4, {}}}};
  for (int j = 0; j < 4; ++j)
    from.stages[0].groups.push_back({j / 2, 0, 4, plan::GpuMask{0xF} << (j % 2 * 4)});
  plan::Layout to = from;
  for (int j = 0; j < 2; ++j)
    to.stages[0].groups.push_back({2, 0, 2, plan::GpuMask{0xF} << (j * 4)});
  const auto stopped = [&](Method method) {
    return cost_of(method, coefficients, from, to, cluster).pause_s;
  };
  cr_assert_gt(stopped(Method::checkpoint), 1.1 * stopped(Method::checkpoint_overlap));
  cr_assert_gt(stopped(Method::checkpoint_overlap), 1.1 * stopped(Method::device_to_device));
  cr_assert_gt(stopped(Method::device_to_device), 1.1 * stopped(Method::local_reuse));
}

Test(redeployment, checkpointing_costs_what_suika_says_more_than_reusing_local_state) {
  // Growth by half, over the models of Suika's testbed, small to middle to large as 3:1:1.
  const auto cluster = cluster::preset("8x8-h100").value();
  double checkpoint = 0, reuse = 0;
  const std::vector<std::pair<double, std::vector<const char*>>> classes = {
      {3, {"gpt2-350m", "gpt2-1.3b", "gpt2-2.6b", "qwen2-0.5b", "qwen2-1.5b"}},
      {1, {"gpt2-6.7b", "llama2-7b", "qwen2-7b"}},
      {1, {"gpt2-15b", "llama2-13b"}}};
  for (const auto& [weight, names] : classes)
    for (const char* name : names) {
      const auto entry = models::find_model(name).value();
      const auto coefficients = perf::expected_coefficients(entry.model, cluster);
      plan::Layout from{16, {{entry.model.layers, entry.tp, {}}}};
      auto add = [&](plan::Layout& layout, int replica) {
        const int gpu = replica * entry.tp;
        layout.stages[0].groups.push_back(
            {gpu / 8, 0, 1, ((plan::GpuMask{1} << entry.tp) - 1) << (gpu % 8)});
      };
      for (int j = 0; j < entry.dp; ++j) add(from, j);
      plan::Layout to = from;
      for (int j = entry.dp; j < std::max(entry.dp + 1, entry.dp * 3 / 2); ++j) add(to, j);
      const double share = weight / static_cast<double>(names.size());
      checkpoint += share * cost_of(Method::checkpoint, coefficients, from, to, cluster).pause_s;
      reuse += share * cost_of(Method::local_reuse, coefficients, from, to, cluster).pause_s;
    }
  cr_assert(checkpoint / reuse >= 4.4 && checkpoint / reuse <= 4.95, "%.2f: %.1f s against %.1f s",
            checkpoint / reuse, checkpoint / 5, reuse / 5);
}

Test(redeployment, a_measured_pause_is_that_of_the_table_and_the_time_for_the_bytes) {
  const plan::Layout two = one_stage(1, 2), four = one_stage(1, 4);
  for (const MeasuredPause& row : kMeasuredPauses) {
    cr_assert_not(row.source.empty());
    const double pause_s =
        measured_cost_of(row.way, support::round_coefficients(), row.grows ? two : four,
                         row.grows ? four : two, support::h100_nodes(2))
            .pause_s;
    const double bytes_s = row.way == Measured::live ? 1.5 : 12;  // 5.6 GB for each GPU
    cr_assert(pause_s > row.pause_s && pause_s < row.pause_s + bytes_s, "%g s for %g s", pause_s,
              row.pause_s);
  }
}
