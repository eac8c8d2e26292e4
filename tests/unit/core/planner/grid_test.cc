// SPDX-License-Identifier: GPL-2.0-or-later
// Arena's cells: partitions, GPUs by load, communication, the frontier and its proxy.
#include <algorithm>
#include <bit>
#include <cmath>
#include <criterion/criterion.h>
#include <random>
#include <set>

#include "core/perf/peak_memory.h"
#include "core/plan/validate.h"
#include "core/planner/grid.h"
#include "core/planner/incremental.h"
#include "core/planner/plan_search.h"
#include "support/cases.h"

using namespace swell;
using namespace swell::planner;

namespace {

/// A job with what its plans refer to. One layer of one sample takes 3 ms for both passes.
struct Job {
  models::Model model;
  cluster::Cluster cluster;
  perf::Coefficients coefficients = support::round_coefficients();
  perf::PerformanceModel perf{model, cluster, coefficients};
  explicit Job(int layers, int nodes = 1, int gpus = 8)
      : model(support::small_model(layers)), cluster(support::h100_nodes(nodes, gpus)) {}

  Islands gpus(int number) const {
    Islands islands;
    for (const auto& gpu : unused({}, cluster))
      if (number-- > 0) add_to(islands, gpu.node, 0, plan::GpuMask{1} << gpu.index);
    return islands;
  }
  CellPlans cell(int number, int stages, GridOptions options = {}) const {
    return Grid(perf, 8, options).plans(gpus(number), stages, {});
  }
};

double distance(const std::vector<int>& gpus, const std::vector<double>& shares) {
  double sum = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    sum += (gpus[i] - shares[i]) * (gpus[i] - shares[i]);
  return sum;
}

/// The least distance over every order of powers of two.
double brute_force(const std::vector<double>& shares, int left, std::vector<int>& chosen) {
  if (chosen.size() == shares.size()) return left == 0 ? distance(chosen, shares) : 1e300;
  double best = 1e300;
  for (int power = 1; power <= left; power *= 2) {
    chosen.push_back(power);
    best = std::min(best, brute_force(shares, left - power, chosen));
    chosen.pop_back();
  }
  return best;
}

CellPlan plan_of(double bias, double communication_s, std::vector<int> layers) {
  CellPlan plan{{1, {}}, bias, communication_s};
  for (const int of : layers) support::add_stage(plan.layout, of, 1, 1, 1);
  return plan;
}

}  // namespace

Test(grid, gpus_are_the_powers_of_two_nearest_to_the_loads) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t stages = 1 + random() % 5;
    const int gpus = static_cast<int>(stages + random() % 20);
    std::vector<double> shares;
    double sum = 0;
    for (std::size_t i = 0; i < stages; ++i) sum += shares.emplace_back(1 + random() % 9);
    for (double& share : shares) share *= gpus / sum;
    std::vector<int> chosen;
    const double least = brute_force(shares, gpus, chosen);
    const auto found = nearest_powers(shares, gpus, 100);
    cr_assert_eq(found.empty(), least > 1e299);  // 7 is not a sum of two powers
    for (const auto& one : found) {
      int all = 0;
      for (const int of : one) {
        cr_assert(std::has_single_bit(static_cast<unsigned>(of)));
        all += of;
      }
      cr_assert_eq(all, gpus);
      cr_assert(std::abs(distance(one, shares) - least) < 1e-6, "trial %d", trial);
    }
    cr_assert(std::set(found.begin(), found.end()).size() == found.size());
  }
}

Test(grid, all_ties_are_found_up_to_a_number) {
  const std::vector<double> thirds(3, 8.0 / 3);
  auto ties = nearest_powers(thirds, 8, 100);
  std::sort(ties.begin(), ties.end());
  cr_assert(ties == (std::vector<std::vector<int>>{{2, 2, 4}, {2, 4, 2}, {4, 2, 2}}));
  cr_assert_eq(nearest_powers(thirds, 8, 2).size(), 2u);
  cr_assert(nearest_powers(thirds, 2, 100).empty());
}

Test(grid, a_cell_tries_every_partition_and_balances_loads) {
  const Job job(8);
  const CellPlans cell = job.cell(4, 2);
  cr_assert_eq(cell.partitions, 7);  // of 8 clusters into 2 stages
  cr_assert(cell.has_plan());
  cr_assert_eq(cell.frontier.front().bias, 0);
  for (const plan::StageLayout& stage : cell.proxy().layout.stages) {
    cr_assert_eq(stage.layers, 4);
    cr_assert_eq(stage.gpu_count(), 2);
  }
  // A quarter of the layers on a quarter of the GPUs has no bias either, with three stages.
  const CellPlans three = job.cell(4, 3);
  cr_assert_eq(three.partitions, 21);
  cr_assert_eq(three.frontier.front().bias, 0);
  std::vector<int> gpus;
  for (const plan::StageLayout& stage : three.proxy().layout.stages) {
    cr_assert_eq(stage.layers, 2 * stage.gpu_count());
    gpus.push_back(stage.gpu_count());
  }
  std::sort(gpus.begin(), gpus.end());
  cr_assert(gpus == (std::vector<int>{1, 1, 2}));
}

Test(grid, bias_is_the_distance_between_gpus_and_loads) {
  // Three layers on 2 + 2 GPUs: shares 4/3 and 8/3, so that both are off by 2/3.
  const CellPlans cell = Job(3).cell(4, 2);
  cr_assert(cell.has_plan());
  cr_assert(support::near(cell.frontier.front().bias, std::sqrt(2.0) * 2 / 3, 1e-6));
}

Test(grid, heads_count_for_the_last_stage) {
  Job job(8);
  job.coefficients.head_layers = 4;
  const CellPlans cell = job.cell(4, 2);
  cr_assert(cell.has_plan());
  cr_assert_eq(cell.proxy().layout.stages[0].layers, 6);  // 6 = 2 + 4
  cr_assert_eq(cell.frontier.front().bias, 0);
}

Test(grid, communication_counts_the_slowest_stage_for_each_further_micro_batch) {
  Job job(2, 1, 2);
  job.coefficients.param_bytes = 1e9;
  job.coefficients.activ_bytes = 1;  // so that TP communicates less than DP
  const CellPlans cell = job.cell(2, 1);
  cr_assert(cell.has_plan());
  const plan::StageLayout& stage = cell.proxy().layout.stages[0];
  cr_assert_eq(stage.tp, 2);
  // 8 micro-batches, each with both passes of two layers.
  const double each = 2 * 2 * job.perf.layer_commu(0, 2, 8);
  cr_assert(support::near(cell.frontier.front().communication_s, 8 * each));
}

Test(grid, gradients_count_once_an_iteration) {
  const Job job(2, 1, 2);
  const CellPlans cell = job.cell(2, 1);
  cr_assert_eq(cell.proxy().layout.stages[0].tp, 1);
  const double gradients = perf::dp_commu(job.perf.gradient_bytes({1, 2, 1, 0}), 1, 2,
                                          job.perf.stage_bandwidth(cell.proxy().layout.stages[0]));
  cr_assert(support::near(cell.frontier.front().communication_s, gradients));
}

Test(grid, plans_beyond_memory_are_refused) {
  Job job(8);
  job.coefficients.param_optim_bytes = 30e9;
  cr_assert_not(job.cell(1, 1).has_plan());
  // 240 GB of state, and 80 GB less a tenth on each GPU: TP alone divides it.
  const CellPlans cell = job.cell(4, 1);
  cr_assert(cell.has_plan());
  cr_assert_eq(cell.proxy().layout.stages[0].tp, 4);
  cr_assert(perf::MemoryModel(job.perf).fits(cell.proxy().layout));
}

Test(grid, a_frontier_has_no_plan_that_another_one_beats) {
  std::vector<CellPlan> frontier;
  add_to_frontier(frontier, plan_of(2, 5, {1}));
  add_to_frontier(frontier, plan_of(1, 7, {1}));
  add_to_frontier(frontier, plan_of(3, 6, {1}));  // beaten by the first
  cr_assert_eq(frontier.size(), 2u);
  cr_assert_eq(frontier[0].bias, 1);
  add_to_frontier(frontier, plan_of(1, 4, {1}));  // beats both
  cr_assert_eq(frontier.size(), 1u);
  cr_assert_eq(frontier[0].communication_s, 4);
}

Test(grid, a_long_frontier_loses_what_is_like_another_plan_and_communicates_more) {
  std::vector<CellPlan> frontier = {plan_of(0, 9, {5, 5}), plan_of(1, 8, {4, 6}),
                                    plan_of(2, 7, {1, 9})};
  reduce_frontier(frontier, 2);
  cr_assert_eq(frontier.size(), 2u);
  cr_assert_eq(frontier[0].bias, 1);
  cr_assert_eq(frontier[1].bias, 2);
}

Test(grid, plans_are_valid_and_fit_memory) {
  int cells = 0;
  for (unsigned seed = 1; seed <= 30; ++seed) {
    support::CaseGenerator generate(seed);
    const auto made = generate.make(2, 16, 1, 4);
    if (!made) continue;
    Islands gpus;
    int left = generate.between(1, 16);
    for (const auto& gpu : unused({}, *made->cluster))
      if (made->cluster->type_of(gpu) == 0 && left-- > 0)
        add_to(gpus, gpu.node, 0, plan::GpuMask{1} << gpu.index);
    const Grid grid(*made->perf, made->start.micro_batches);
    for (const CellPlans& cell : grid.cells(gpus, {})) {
      double bias = -1, communication = 1e300;
      for (const CellPlan& plan : cell.frontier) {
        const auto valid = plan::validate(plan::name_all(plan.layout, *made->cluster), *made->model,
                                          *made->cluster);
        cr_assert(valid.ok(), "seed %u: %s", seed,
                  valid.ok() ? "" : valid.error().message().c_str());
        cr_assert(perf::MemoryModel(*made->perf).fits(plan.layout), "seed %u", seed);
        cr_assert_eq(plan.layout.gpu_count(), count(gpus));
        cr_assert_gt(plan.bias, bias);
        cr_assert_lt(plan.communication_s, communication);
        bias = plan.bias;
        communication = plan.communication_s;
      }
      cells += cell.has_plan() ? 1 : 0;
    }
  }
  cr_assert_gt(cells, 50);
}

Test(grid, a_table_has_the_faster_one_of_proxy_and_incremental_plan) {
  const Job job(10, 2, 8);
  const GridTable table = grid_table(job.perf, 8, {2, 6, 12, 32}, {});
  cr_assert(table.complete);
  cr_assert_eq(table.rows.size(), 3u);  // there are 16 GPUs
  int incremental = 0;
  for (const GridRow& row : table.rows) {
    const CellPlan* best = best_plan(row.cells);
    cr_assert(best != nullptr);
    cr_assert_leq(best->seconds, best_proxy(row.cells)->seconds);
    cr_assert_leq(row.seconds, best->seconds);
    cr_assert(support::near(row.seconds, job.perf.iteration_time(row.layout).total()));
    cr_assert_leq(row.layout.gpu_count(), row.gpus);
    const bool faster = row.seconds < best->seconds * (1 - 1e-9);
    cr_assert_str_eq(row.by, faster ? "incremental" : "grid");
    incremental += faster ? 1 : 0;
  }
  cr_assert_gt(incremental, 0);
}

Test(grid, stages_of_cp_and_ep_have_a_power_of_two_of_their_groups) {
  // Nodes of 8 GPUs, so that CP 3 leaves two of each idle.
  for (const auto& [cp, ep, first] : {std::tuple{3, 1, 3}, {3, 2, 3}, {1, 3, 3}, {2, 6, 3}}) {
    Job job(8, 2, 8);
    job.model.sequence = 3 * 1024;
    job.model.moe = {12, 2, 0, 1024};
    job.model.cp = cp;
    job.model.ep = ep;
    cr_assert(models::check(job.model).ok());
    const perf::PerformanceModel perf(job.model, job.cluster, job.coefficients);
    const GridTable table = grid_table(perf, 8, {}, {});
    cr_assert_eq(table.rows.front().gpus, first);
    cr_assert_eq(table.rows.back().gpus, 12);
    int plans = 0;
    for (const GridRow& row : table.rows) {
      if (row.layout.stages.empty()) continue;
      ++plans;
      const auto valid = plan::validate(plan::name_all(row.layout, job.cluster, job.model),
                                        job.model, job.cluster);
      cr_assert(valid.ok(), "CP %d, EP %d, %d GPUs: %s", cp, ep, row.gpus,
                valid.ok() ? "" : valid.error().message().c_str());
    }
    cr_assert_geq(plans, 2, "CP %d, EP %d: %d plans", cp, ep, plans);
    const GridRow& most = table.rows.back();
    cr_assert_eq(most.layout.gpu_count(), 12, "CP %d, EP %d: %d GPUs", cp, ep,
                 most.layout.gpu_count());
    for (const CellPlans& cell : most.cells)
      for (const CellPlan& plan : cell.frontier)
        for (const plan::StageLayout& stage : plan.layout.stages)
          cr_assert(std::has_single_bit(static_cast<unsigned>(stage.gpu_count() / 3)));
  }
}

Test(grid, a_size_that_fits_no_plan_has_none_and_time_up_is_said) {
  Job job(8);
  job.coefficients.param_optim_bytes = 30e9;
  const GridTable table = grid_table(job.perf, 8, {}, {});
  cr_assert_eq(table.rows.size(), 4u);  // 1, 2, 4, 8
  cr_assert(table.rows[0].layout.stages.empty());
  cr_assert_not(table.rows[2].layout.stages.empty());
  cr_assert_not(grid_table(job.perf, 8, {}, {[] { return true; }}).complete);
}

namespace {

/// Number of ways to write `left` as powers of two for `parts` stages, in order.
long assignments(int left, int parts) {
  if (parts == 0) return left == 0 ? 1 : 0;
  long sum = 0;
  for (int power = 1; power <= left; power *= 2) sum += assignments(left - power, parts - 1);
  return sum;
}

long binomial(int n, int k) { return k == 0 ? 1 : binomial(n - 1, k - 1) * n / k; }

}  // namespace

Test(grid, a_search_of_all_plans_tries_each_and_finds_none_slower_than_the_frontiers) {
  // One head would allow TP of 1 alone: counted by hand. Here TP of 1 to 8 GPUs a stage.
  Job job(6);
  job.model.heads = 1;
  job.model.kv_heads = 1;
  const perf::PerformanceModel perf(job.model, job.cluster, job.coefficients);
  const Grid grid(perf, 8);
  const auto cells = grid.cells(job.gpus(4), {});
  const SearchedPlan all = search_plans(perf, 8, grid, job.gpus(4), std::nullopt, {});
  long expected = 0;
  for (int stages = 1; stages <= 4; ++stages)
    expected += binomial(5, stages - 1) * assignments(4, stages);
  cr_assert_eq(all.evaluated, expected);
  cr_assert_leq(all.seconds, best_plan(cells)->seconds + 1e-12);
  cr_assert_float_eq(perf.iteration_time(all.layout).total(), all.seconds, 1e-12);
}

Test(grid, pruning_keeps_the_number_of_stages_the_balance_and_settled_stages) {
  for (const int layers : {6, 8, 13})
    for (const int gpus : {2, 4, 8}) {
      const Job job(layers);
      const Grid grid(job.perf, 8, {.clusters = 6});
      const Islands on = job.gpus(gpus);
      const auto cells = grid.cells(on, {});
      const auto pruning = pruning_by(grid, cells);
      cr_assert(pruning.has_value());
      cr_assert_eq(pruning->stages, best_plan(cells)->layout.pp());
      const SearchedPlan all = search_plans(job.perf, 8, grid, on, std::nullopt, {}),
                         pruned = search_plans(job.perf, 8, grid, on, pruning, {});
      cr_assert_lt(pruned.evaluated, all.evaluated);
      cr_assert_geq(pruned.seconds, all.seconds - 1e-12);
      cr_assert_leq(pruned.seconds, best_plan(cells)->seconds + 1e-12,
                    "the frontier's plans are among those that are left");
      cr_assert_eq(pruned.layout.pp(), pruning->stages);
      // Whatever the pruning leaves obeys each of its rules; by hand for the plan found.
      std::size_t first = 0;
      double bias = 0;
      for (const auto& stage : pruned.layout.stages) {
        std::size_t end = first;
        for (int left = stage.layers; left > 0; ++end) left -= grid.clusters()[end];
        const int its = stage.dp() * stage.tp;
        const double share =
            gpus * grid.load_of(first, end) / grid.load_of(0, grid.clusters().size());
        bias += (its - share) * (its - share);
        bool same = false, settled = false;
        for (const FixedStage& one : pruning->fixed)
          if (one.first == first && one.end == end) {
            settled = true;
            same |= one.gpus == its && one.tp == stage.tp;
          }
        cr_assert(same || !settled);
        first = end;
      }
      cr_assert_leq(std::sqrt(bias), pruning->most_bias + 1e-6);
    }
}

Test(grid, a_search_stops_when_time_is_up_and_finds_nothing_where_nothing_fits) {
  const Job job(8);
  const Grid grid(job.perf, 8);
  int asked = 0;
  const SearchedPlan some =
      search_plans(job.perf, 8, grid, job.gpus(8), std::nullopt, {[&] { return ++asked > 50; }});
  cr_assert_not(some.complete);
  cr_assert_lt(some.evaluated, 50);
  Job large(8);
  large.coefficients.param_bytes = large.coefficients.param_optim_bytes = 1e12;
  const Grid none(large.perf, 8);
  cr_assert_not(pruning_by(none, none.cells(large.gpus(4), {})).has_value());
  cr_assert(
      search_plans(large.perf, 8, none, large.gpus(4), std::nullopt, {}).layout.stages.empty());
}

Test(grid, the_solvers_take_pruning_as_an_option) {
  const Job job(12);
  plan::Layout one{8, {{12, 1, {{0, 0, job.model.global_batch / 8, 1}}}}};
  std::vector<cluster::GpuRef> free;
  for (int g = 1; g < 8; ++g) free.push_back({0, g});
  const Problem problem{job.perf, one, free};
  const auto table_of = [&](GridSolver::Search search) {
    return GridSolver(GridSolver::Options{search, 6}).solve(problem, {});
  };
  const ScaleTable plain = table_of(GridSolver::Search::none),
                   pruned = table_of(GridSolver::Search::pruned),
                   all = table_of(GridSolver::Search::all);
  cr_assert_lt(plain.evaluated, pruned.evaluated);
  cr_assert_lt(pruned.evaluated, all.evaluated);
  for (std::size_t row = 0; row < plain.rows.size(); ++row) {
    cr_assert_geq(pruned.rows[row].throughput, plain.rows[row].throughput - 1e-9);
    cr_assert_geq(all.rows[row].throughput, pruned.rows[row].throughput - 1e-9);
  }
  Incremental::Options options;
  options.max_free = 7;
  const ScaleTable usual = Incremental(options).solve(problem, {});
  options.prunes = true;
  const ScaleTable fewer = Incremental(options).solve(problem, {});
  cr_assert_lt(fewer.evaluated, usual.evaluated, "%ld, %ld", fewer.evaluated, usual.evaluated);
  cr_assert_geq(fewer.rows.back().throughput, 0.9 * usual.rows.back().throughput);
}
