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

Test(grid, a_size_that_fits_no_plan_has_none_and_time_up_is_said) {
  Job job(8);
  job.coefficients.param_optim_bytes = 30e9;
  const GridTable table = grid_table(job.perf, 8, {}, {});
  cr_assert_eq(table.rows.size(), 4u);  // 1, 2, 4, 8
  cr_assert(table.rows[0].layout.stages.empty());
  cr_assert_not(table.rows[2].layout.stages.empty());
  cr_assert_not(grid_table(job.perf, 8, {}, {[] { return true; }}).complete);
}
