// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/metis.h"

#include <algorithm>
#include <cmath>

#include "core/planner/affinity.h"
#include "core/planner/incremental.h"
#include "core/planner/metis.h"
#include "core/policy/rivals/suika.h"

namespace swell::policy {

namespace {

// Metis checks the time once in many plans: 300,000 plans of LLaMA2-13B on 40 GPUs make 731 checks.
constexpr double kTimeChecksPerPlan = 735.0 / 300'000;

/// Returns whether a search is made for `gpus`: the other numbers would take as long and are hardly
/// ever used.
bool is_searched(int gpus) { return gpus <= 16 || (gpus <= 32 ? gpus % 2 == 0 : gpus % 4 == 0); }

}  // namespace

TimedMetis::TimedMetis(int max_free, double plans_per_s)
    : max_free_(max_free),
      max_time_checks_(std::lround(kBudget_s * plans_per_s * kTimeChecksPerPlan)) {}

planner::ScaleTable TimedMetis::solve(const planner::Problem& problem,
                                      const planner::Budget& budget) const {
  planner::Metis::Options options;
  options.last_only = true;
  const planner::Metis metis(options);
  planner::ScaleTable table;
  table.order = planner::affinity_order(problem.current, problem.free, problem.perf.cluster());
  const int have = problem.current.gpu_count();
  const std::size_t max = static_cast<std::size_t>(max_free_ > 0 ? max_free_ : have);
  if (table.order.size() > max) table.order.resize(max);
  table.rows.push_back(
      {{have, problem.perf.throughput(problem.current)}, problem.current, "the current plan"});
  for (std::size_t i = 1; i <= table.order.size(); ++i) {
    if (!is_searched(have + static_cast<int>(i))) continue;
    planner::Problem search = problem;
    search.free.assign(table.order.begin(), table.order.begin() + static_cast<std::ptrdiff_t>(i));
    long questions = 0;
    planner::Budget counted{[&] { return ++questions > max_time_checks_ || budget.expired(); }};
    planner::ScaleTable found = metis.solve(search, counted);
    table.evaluated = std::max(table.evaluated, found.evaluated);
    if (questions > max_time_checks_ || !found.complete) {
      table.complete = false;  // more GPUs would take even longer
      break;
    }
    planner::ScaleRow row = std::move(found.rows.back());
    if (row.throughput < table.rows.back().throughput) row = table.rows.back();
    row.gpus = have + static_cast<int>(i);
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::unique_ptr<SimulatedPolicy> make_metis(MarginalBenefit::Options options, double plans_per_s) {
  // Reclaims and the plans after them use the incremental solver: they are not worth 60 s of
  // search.
  planner::Incremental::Options grown;
  grown.max_free = 1 << 20;
  return std::make_unique<Suika>(
      std::make_unique<MarginalBenefit>(std::move(options),
                                        std::make_unique<TimedMetis>(0, plans_per_s),
                                        std::make_unique<planner::Incremental>(grown)),
      Suika::Search{TimedMetis::kBudget_s, plans_per_s});
}

}  // namespace swell::policy
