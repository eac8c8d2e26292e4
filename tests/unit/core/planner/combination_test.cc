// SPDX-License-Identifier: GPL-2.0-or-later
// FlexTrain, section 4.4: what excludes a combination of degrees.
#include "core/planner/combination.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "core/models/catalogue.h"
#include "core/plan/validate.h"
#include "core/planner/incremental.h"
#include "core/planner/island.h"
#include "core/planner/registry.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::planner;

namespace {

models::Model small(int cp, int ep) {
  models::Model model = models::find_model("flextrain-small").value().model;
  model.cp = cp;
  model.ep = ep;
  return model;
}

std::string said_of_gpus(int gpus, int cp, int ep) {
  const auto good = check_gpus(gpus, small(cp, ep));
  return good ? "" : good.error().message();
}

/// Returns the error for degrees of Table 2's Small: 15 layers, 2 MTP heads, 1,024 samples, 64
/// experts.
std::string said(const perf::Combination& degrees, int cp = 1, int ep = 1) {
  const auto good = check_combination(degrees, small(cp, ep));
  return good ? "" : good.error().message();
}

}  // namespace

Test(combination, degrees_of_the_paper_are_possible) {
  cr_assert_eq(said({4, 1, 1, 16}, 8, 8), "");
  cr_assert_eq(said({15, 4, 1, 16}, 8, 8), "");
}

Test(combination, an_impossible_one_is_named_with_its_number_and_the_reason) {
  cr_assert_eq(said({4, 3, 1, 16}),
               "DP 3 in 16 micro-batches does not divide the global batch of 1024 samples evenly");
  cr_assert_eq(said({16, 1, 1, 16}),
               "PP 16 leaves stages empty: model flextrain-small has 15 layers");
  cr_assert_eq(said({4, 1, 3, 16}), "TP 3 does not divide the 16 heads of model flextrain-small");
  cr_assert_eq(said({4, 1, 1, 16}, 8, 16), "EP 16 does not divide the 8 ranks of DP 1 and CP 8");
  cr_assert_eq(said({4, 0, 1, 16}), "DP is 0; it is at least 1");
}

Test(combination, tensor_parallelism_divides_the_heads_for_keys_and_values) {
  models::Model model = models::find_model("qwen2-1.5b")->model;
  cr_assert_eq(model.heads, 12);
  cr_assert_eq(model.kv_heads, 2);
  const auto refused = check_combination({1, 1, 4, 16}, model);
  cr_assert_not(refused.ok());
  cr_assert_eq(refused.error().message(),
               "TP 4 does not divide the 2 heads for keys and values of model qwen2-1.5b");
  cr_assert(check_combination({1, 1, 2, 16}, model).ok());
  cr_assert_eq(degrees_for(model, 8).tp, (std::vector<int>{1, 2}));
  model.kv_heads = 12;
  cr_assert_eq(degrees_for(model, 8).tp, (std::vector<int>{1, 2, 4}));
}

Test(combination, chunks_take_a_stage_for_each_unit) {
  // The embedding, 15 layers, the head, and two units for each of two MTP heads.
  cr_assert_eq(said({21, 1, 1, 16, 1}), "");
  cr_assert_eq(said({22, 1, 1, 16, 1}),
               "PP 22 leaves stages empty: model flextrain-small has 21 units");
}

Test(combination, a_number_of_gpus_that_cp_or_ep_excludes_is_named) {
  cr_assert_eq(said_of_gpus(12, 1, 1), "");
  cr_assert_eq(said_of_gpus(12, 4, 1), "");
  cr_assert_eq(said_of_gpus(12, 8, 1), "CP 8 does not divide 12 GPUs");
  cr_assert_eq(said_of_gpus(12, 1, 8), "EP 8 does not divide the ranks of any DP on 12 GPUs");
  cr_assert_eq(said_of_gpus(12, 4, 8),
               "EP 8 does not divide the ranks of any DP on 12 GPUs with CP 4");
  cr_assert_eq(said_of_gpus(16, 4, 8), "");
}

Test(combination, every_solver_keeps_cp_and_ep_and_leaves_out_other_numbers_of_gpus) {
  models::Model model = support::small_model(8, 64);
  model.moe = {8, 2, 0, 1024};
  model.cp = 2;
  model.ep = 4;
  cr_assert(models::check(model).ok());
  const auto cluster = support::h100_nodes(2);
  const auto k = perf::expected_coefficients(model, cluster);
  const perf::PerformanceModel perf(model, cluster, k);
  plan::Layout current{8, {}};
  support::add_stage(current, 8, 2, 2, 4);  // DP 2, TP 1 x CP 2
  Problem problem{perf, current, {}};
  for (int gpu = 4; gpu < 8; ++gpu) problem.free.push_back({0, gpu});
  for (int gpu = 0; gpu < 4; ++gpu) problem.free.push_back({1, gpu});
  for (const char* name : {"incremental", "exhaustive", "symmetric", "dp-only", "metis", "grid"}) {
    const auto solver = make_solver(name);
    const ScaleTable table = (*solver)->solve(problem, {});
    int most = 0;
    for (const ScaleRow& row : table.rows) {
      const plan::Plan plan = plan::name_all(row.layout, cluster, model);
      cr_assert_eq(plan.cp, 2);
      cr_assert_eq(plan.ep, 4);
      const auto valid = plan::validate(plan, model, cluster);
      cr_assert(valid.ok(), "%s, %d GPUs: %s", name, row.gpus,
                valid.ok() ? "" : valid.error().message().c_str());
      most = std::max(most, plan.gpu_count());
      if (&row == &table.rows.front()) continue;
      const bool excluded = row.gpus % 4 != 0;
      cr_assert_eq(row.omitted == RowRule::indivisible, excluded, "%s, %d GPUs", name, row.gpus);
      if (row.gpus % 2 != 0)
        cr_assert_eq(row.why, fmt::format("CP 2 does not divide {} GPUs", row.gpus));
    }
    cr_assert_geq(most, 8, "%s uses at most %d GPUs", name, most);
  }
}

Test(combination, exact_plans_keep_cp_and_ep) {
  models::Model model = support::small_model(8, 64);
  model.moe = {8, 2, 0, 1024};
  model.cp = 2;
  model.ep = 4;
  const auto cluster = support::h100_nodes(2);
  const auto k = perf::expected_coefficients(model, cluster);
  const perf::PerformanceModel perf(model, cluster, k);
  plan::Layout current{8, {}};
  support::add_stage(current, 8, 2, 2, 4);
  Problem problem{perf, current, {}, Consistency::exact};
  for (int gpu = 4; gpu < 8; ++gpu) problem.free.push_back({0, gpu});
  const ScaleTable table = Incremental().solve(problem, {});
  cr_assert_eq(table.rows.back().gpus, 8);
  const plan::Plan plan = plan::name_all(table.rows.back().layout, cluster, model);
  cr_assert(plan::validate(plan, model, cluster).ok());
  cr_assert_eq(plan.gpu_count(), 8);
  cr_assert_eq(plan.summary(), "4L dp2 tp1 | 4L dp2 tp1, cp2 ep4");
  cr_assert_neq(table.rows.back().why.find("dp2 tp1"), std::string::npos, "%s",
                table.rows.back().why.c_str());
}

Test(combination, rows_that_are_left_out_for_cp_stay_so_under_the_filter) {
  ScaleTable table;
  for (int gpus = 4; gpus <= 8; ++gpus) table.rows.push_back({{gpus, 10.0 * gpus}, {}, "grown"});
  leave_out_indivisible(table, small(4, 1));
  filter_rows(table, {0, 0, 0.05});
  cr_assert(table.rows[0].omitted == RowRule::none);
  for (std::size_t i = 1; i < 4; ++i) cr_assert(table.rows[i].omitted == RowRule::indivisible);
  cr_assert(table.rows[4].omitted == RowRule::none);
  cr_assert_eq(table.rows[1].why, "CP 4 does not divide 5 GPUs");
  cr_assert_eq(table.rows[4].why, "grown");
}
