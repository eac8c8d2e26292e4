// SPDX-License-Identifier: GPL-2.0-or-later
// Suika's appendix A.4: what one profile tells.
#include "core/perf/solve.h"

#include <cmath>
#include <criterion/criterion.h>
#include <functional>
#include <random>

#include "core/perf/chunk_costs.h"
#include "core/perf/stability.h"
#include "core/plan/validate.h"
#include "support/profiles.h"

using namespace swell;
using namespace swell::perf;
using support::near;

namespace {

Coefficients truth(std::size_t types = 2) {
  Coefficients k = support::round_coefficients(types);
  for (std::size_t i = 0; i < types; ++i) k.types[i].overlap = 1.7 + 0.4 * static_cast<double>(i);
  k.types[0].backward = 2.1;
  k.first = {3e8, 2e9, 0};
  k.last = {3e8, 2e9, 1e8};
  return k;
}

/// Two stages: DP 2 over TP 2, DP 2 over TP 4; slow network, so that synchronization shows.
plan::Layout both_parallel(int type1 = 0) {
  plan::Layout layout{8, {}};
  support::add_stage(layout, 5, 2, 2, 4, 0);
  support::add_stage(layout, 3, 2, 2, 4, 1, 0, type1);
  return layout;
}

std::string refusal(const std::function<void(Profile&)>& spoil) {
  const auto cluster = support::h100_nodes(2, 8, 2e9);
  Profile profile = support::observe(both_parallel(), support::small_model(), cluster, truth(1));
  spoil(profile);
  const auto solved = solve(profile, cluster);
  return solved.ok() ? "" : solved.error().message();
}

}  // namespace

Test(solve, gives_back_the_coefficients_that_made_the_profile) {
  const auto cluster = support::h100_nodes(2, 8);
  const auto known = truth(1);
  const Profile profile = support::observe(both_parallel(), support::small_model(), cluster, known);
  const auto solved = solve(profile, cluster);
  cr_assert(solved.ok());
  cr_assert_lt(largest_change(*solved, known), 1e-6, "%g", largest_change(*solved, known));
  cr_assert_lt(std::abs(solved->first.param_optim_bytes / known.first.param_optim_bytes - 1), 1e-6);
}

Test(solve, the_share_of_weights_in_the_backward_pass_counts_in_the_costs_of_chunks) {
  const auto cluster = support::mixed_nodes(8, 8);
  const models::Model model = support::small_model();
  Profile profile = support::observe(both_parallel(), model, cluster, truth(2));
  const plan::Layout layout = both_parallel(1);
  const auto share = [&](int stage) {
    const Coefficients solved = solve(profile, cluster).value();
    const auto cost = chunk_costs(PerformanceModel(model, cluster, solved), layout)
                          .chunks[static_cast<std::size_t>(stage)]
                          .seconds;
    return cost[2] / (cost[1] + cost[2]);
  };
  cr_assert_float_eq(share(0), 0.5, 1e-9, "not seen");
  for (auto& seen : profile.groups)
    if (seen.stage == 1) seen.weights_s = 0.3 * seen.bwd_s;
  cr_assert_float_eq(share(0), 0.3, 1e-9, "of groups that show it");
  cr_assert_float_eq(share(1), 0.3, 1e-9, "the other type has the same");
  cr_assert_neq(refusal([](Profile& its) {
                  its.groups[0].weights_s = its.groups[0].bwd_s;
                }).find("weights_s"),
                std::string::npos);
}

Test(solve, two_gpu_types_are_told_apart) {
  const auto cluster = support::mixed_nodes(8, 8);
  const Profile profile =
      support::observe(both_parallel(1), support::small_model(), cluster, truth(2));
  cr_assert_lt(largest_change(solve(profile, cluster).value(), truth(2)), 1e-6);
}

Test(solve, two_tp_degrees_need_no_knowledge_of_the_architecture) {
  const auto cluster = support::h100_nodes(2, 8);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 5, 2, 2, 4, 0);
  support::add_stage(layout, 3, 4, 2, 4, 1);
  Profile profile = support::observe(layout, support::small_model(), cluster, truth(1));
  profile.whole_activations.reset();
  cr_assert_lt(largest_change(solve(profile, cluster).value(), truth(1)), 1e-6);
}

Test(solve, without_data_parallelism_nothing_is_assumed_to_overlap) {
  const auto cluster = support::h100_nodes(2, 8);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 4, 1, 8, 0);
  const auto solved =
      solve(support::observe(layout, support::small_model(), cluster, truth(1)), cluster);
  cr_assert(solved.ok());
  cr_assert_eq(solved->types[0].overlap, 1);
  Coefficients known = truth(1);
  known.types[0].overlap = 1;
  cr_assert_lt(largest_change(*solved, known), 1e-6);
}

Test(solve, ranks_of_cp_sum_gradients_where_there_is_no_data_parallelism) {
  const auto cluster = support::h100_nodes(2, 8);
  models::Model model = support::small_model();
  model.cp = 2;
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 4, 1, 8, 0);  // TP 2 x CP 2
  const Profile profile = support::observe(layout, model, cluster, truth(1));
  cr_assert(plan::validate(profile.plan, model, cluster).ok());
  cr_assert_gt(profile.groups.front().commu_extra_s, 0);
  const auto solved = solve(profile, cluster, {}, model);
  cr_assert(solved.ok(), "%s", solved ? "" : solved.error().message().c_str());
  cr_assert_lt(largest_change(*solved, truth(1)), 1e-6, "%g", largest_change(*solved, truth(1)));
}

Test(solve, without_tensor_parallelism_and_with_one_stage) {
  const auto cluster = support::h100_nodes(2, 8);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 1, 4, 2, 0);
  cr_assert_lt(
      largest_change(
          solve(support::observe(layout, support::small_model(), cluster, truth(1)), cluster)
              .value(),
          truth(1)),
      1e-6);
}

// A model whose embedding weighs as much as two of its layers, on one stage, tells what two stages
// hold.
Test(solve, one_stage_tells_the_peaks_of_two) {
  const auto cluster = support::h100_nodes(2, 8);
  for (const bool tied : {false, true}) {
    Coefficients known = truth(1);
    known.first = known.last = {2 * known.param_bytes, 2 * known.param_optim_bytes, 0};
    known.last.activ_p_bytes = 1e8;
    known.tied_embedding = tied;
    plan::Layout one{8, {}};
    support::add_stage(one, 8, 2, 4, 2, 0);
    const auto solved =
        solve(support::observe(one, support::small_model(), cluster, known), cluster);
    cr_assert(solved.ok());
    cr_assert_eq(solved->tied_embedding, tied);
    const auto model = support::small_model();
    const PerformanceModel predicted(model, cluster, *solved), real(model, cluster, known);
    for (int stage = 0; stage < 2; ++stage) {
      const double mine = MemoryModel(predicted).peak(stage, 2, 8, 4, 2, 4, 0).total(),
                   true_bytes = MemoryModel(real).peak(stage, 2, 8, 4, 2, 4, 0).total();
      cr_assert(near(mine, true_bytes, 0.03), "tied %d, stage %d: %g, %g", tied, stage, mine,
                true_bytes);
    }
  }
}

Test(solve, layers_and_heads_of_mtp_are_told_apart) {
  const auto cluster = support::h100_nodes(2, 8);
  models::Model model = support::small_model();
  model.mtp_heads = 2;
  Coefficients known = truth(1);
  known.types[0].launch_s = 1e-9;
  known.head_layers = 1.3;
  // All heads on the last stage, the last module with its head alone, and two chunks a stage.
  for (const auto& chunks :
       std::vector<std::vector<std::vector<int>>>{{}, {{6}, {8}}, {{12}, {2}}, {{5, 4}, {3, 2}}}) {
    plan::Layout layout{8, {}};
    support::add_stage(layout, chunks.empty() || chunks[0].size() == 2 ? 5 : chunks[0][0] - 1, 2, 2,
                       4, 0);
    support::add_stage(layout, 0, 2, 2, 4, 1);
    layout.stages[0].layers = std::min(layout.stages[0].layers, 8);
    layout.stages[1].layers = 8 - layout.stages[0].layers;
    for (std::size_t i = 0; i < chunks.size(); ++i) layout.stages[i].chunks = chunks[i];
    const auto solved = solve(support::observe(layout, model, cluster, known), cluster, {}, model);
    cr_assert(solved.ok(), "%s", solved.error().message().c_str());
    cr_assert(near(solved->head_layers, 1.3, 0.02), "%g", solved->head_layers);
    cr_assert(near(solved->types[0].comp_s, known.types[0].comp_s, 0.02), "%g",
              solved->types[0].comp_s);
    cr_assert(near(solved->param_bytes, known.param_bytes, 1e-6), "%g", solved->param_bytes);
    cr_assert(near(solved->last.param_bytes, known.last.param_bytes, 1e-6));
    // A stage keeps what the schedule of its chunks keeps.
    cr_assert(near(solved->activ_p_bytes, known.activ_p_bytes, 0.02), "%g of %g",
              solved->activ_p_bytes, known.activ_p_bytes);
  }
}

Test(solve, observed_launches_make_the_second_model) {
  const auto cluster = support::h100_nodes(2, 8);
  Coefficients known = truth(1);
  known.types[0].launch_s = 3e-3;
  known.types[0].whole_s = known.activ_bytes / 2 * 19 / cluster.type(0).hbm_bytes_per_s;
  known.head_layers = 2.5;
  const auto model = support::small_model();
  const auto solved = solve(support::observe(both_parallel(), model, cluster, known), cluster);
  cr_assert(solved.ok());
  cr_assert(near(solved->types[0].comp_s, known.types[0].comp_s, 1e-6), "%g",
            solved->types[0].comp_s);
  cr_assert(near(solved->types[0].backward, known.types[0].backward, 1e-6));
  cr_assert(near(solved->head_layers, known.head_layers, 1e-6));
  const PerformanceModel predicted(model, cluster, *solved), real(model, cluster, known);
  plan::Layout other{16, {}};
  support::add_stage(other, 4, 1, 2, 2, 0);
  support::add_stage(other, 4, 4, 1, 4, 1);
  cr_assert(
      near(predicted.iteration_time(other).total(), real.iteration_time(other).total(), 1e-6));
  const auto& k = known.types[0];
  const double one = real.layer_time(0, 1, 1), eight = real.layer_time(0, 1, 8);
  cr_assert_gt(8 * one, 2 * eight, "launches: %g for one sample, %g for eight", one, eight);
  cr_assert_gt(real.layer_time(0, 8, 8), real.layer_time(0, 1, 8) / 8 + 0.9 * 3 * k.launch_s / 2);
  const auto read = coefficients_from_json(to_json(known, cluster), cluster);
  cr_assert(read.ok());
  cr_assert(*read == known);
}

Test(solve, an_unseen_type_is_scaled_by_peak_speed) {
  const auto cluster = support::mixed_nodes(8, 8);
  plan::Layout layout{8, {}};
  support::add_stage(layout, 8, 2, 2, 4, 0);
  const auto solved =
      solve(support::observe(layout, support::small_model(), cluster, truth(2)), cluster).value();
  const double slower = 989.4 / 312;
  cr_assert(support::near(solved.types[1].comp_s, solved.types[0].comp_s * slower));
  cr_assert(support::near(solved.types[1].optim_s, solved.types[0].optim_s * slower));
  cr_assert_eq(solved.types[1].backward, solved.types[0].backward);
  cr_assert_eq(solved.types[1].overlap, solved.types[0].overlap);
}

Test(solve, two_percent_noise_moves_no_coefficient_by_five) {
  const auto cluster = support::mixed_nodes(8, 8, 10e9);
  for (unsigned seed = 1; seed <= 200; ++seed) {
    Profile profile = support::observe(both_parallel(1), support::small_model(), cluster, truth(2));
    support::add_noise(profile, 0.02, seed);
    const auto solved = solve(profile, cluster);
    cr_assert(solved.ok());
    cr_assert_lt(largest_change(*solved, truth(2)), 0.05, "seed %u: %g", seed,
                 largest_change(*solved, truth(2)));
  }
}

Test(solve, refuses_impossible_observations_by_name) {
  using P = Profile&;
  cr_assert_eq(refusal([](P p) { p.groups[1].fwd_s = -1; }),
               "solving coefficients: stage 0, group 1: fwd_s is -1; it must be above 0");
  cr_assert_eq(refusal([](P p) { p.groups[2].optim_s = NAN; }),
               "solving coefficients: stage 1, group 0: optim_s is not a finite number");
  cr_assert_eq(refusal([](P p) { p.groups.clear(); }),
               "solving coefficients: the profile observed no group");
  cr_assert_eq(refusal([](P p) { p.activ_bytes = 0; }),
               "solving coefficients: activ_bytes is 0; it must be above 0");
  cr_assert_eq(refusal([](P p) { p.groups[0].stage = 2; }),
               "solving coefficients: a group of stage 2 was observed; the plan has 2 stages");
  cr_assert_eq(refusal([](P p) { p.groups[0].group = 2; }),
               "solving coefficients: stage 0: group 2 was observed; it has 2");
  cr_assert_neq(refusal([](P p) {
                  p.groups[0].fwd_commu_s = 1;
                }).find("fwd_commu_s is 1; it must be below fwd_s"),
                std::string::npos);
  cr_assert_neq(refusal([](P p) {
                  p.groups[0].bwd_s = 1e-9;
                }).find("bwd_s is 1e-09; it must be above the TP communication"),
                std::string::npos);
  cr_assert_neq(refusal([](P p) { p.plan.stages[0].tp = 1; }).find("although the TP degree is 1"),
                std::string::npos);
  cr_assert_neq(refusal([](P p) {
                  p.plan.stages[1].groups.pop_back();
                  p.groups.pop_back();
                }).find("although the DP degree is 1"),
                std::string::npos);
  cr_assert_neq(refusal([](P p) {
                  p.groups[0].peak_bytes = 1;
                }).find("peak_bytes is 1; it must be at least the"),
                std::string::npos);
  cr_assert_neq(refusal([](P p) { p.whole_activations.reset(); }).find("whole_activations (C_np"),
                std::string::npos);
  cr_assert_neq(refusal([](P p) {
                  p.plan.stages[0].groups[0].gpu_type = "x";
                }).find("GPU type \"x\" is not in cluster"),
                std::string::npos);
}

Test(stability, is_reached_when_a_whole_window_stays_within_two_percent) {
  Stability stability(3, 0.02);
  Coefficients k = truth(1);
  cr_assert_not(stability.add(k));
  k.types[0].comp_s *= 1.05;
  cr_assert_not(stability.add(k));
  k.types[0].comp_s *= 1.009;
  cr_assert_not(stability.add(k), "the first set is 5 %% away");
  k.types[0].comp_s *= 1.009;
  cr_assert(stability.add(k));
  stability.reset();
  cr_assert_not(stability.add(k));
}

Test(coefficients, json_round_trips_and_wants_every_type) {
  const auto cluster = support::mixed_nodes(8, 8);
  const auto read = coefficients_from_json(to_json(truth(2), cluster), cluster);
  cr_assert(read.ok() && *read == truth(2));
  Coefficients sharded = truth(2);
  sharded.sharded_state = 0.75;
  sharded.sharded_gradients = 0.5;
  sharded.max_shards = 4;
  const auto again = coefficients_from_json(to_json(sharded, cluster), cluster);
  cr_assert(again.ok() && *again == sharded);
  sharded.sharded_state = 1.25;
  cr_assert_not(coefficients_from_json(to_json(sharded, cluster), cluster).ok());
  const auto less = coefficients_from_json(to_json(truth(1), support::h100_nodes(1)), cluster);
  cr_assert_eq(less.error().message(), "\"types\" has no GPU type \"a100\", which the cluster has");
}
