// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/scale_tables.h"

#include <criterion/criterion.h>

#include "core/planner/incremental.h"
#include "support/views.h"

using namespace swell;
using namespace swell::policy;
using cluster::GpuRef;

namespace {

/// Says by its rows' throughput which solver it is, and counts its calls.
class Marked final : public planner::Solver {
 public:
  Marked(double mark, long evaluated, int& calls)
      : mark_(mark), evaluated_(evaluated), calls_(calls) {}
  planner::ScaleTable solve(const planner::Problem& problem,
                            const planner::Budget&) const override {
    ++calls_;
    planner::ScaleTable table;
    table.rows.push_back({{problem.current.gpu_count(), mark_}, problem.current, ""});
    table.order = problem.free;
    table.evaluated = evaluated_;
    return table;
  }

 private:
  double mark_;
  long evaluated_;
  int& calls_;
};

constexpr double kQuick = 1, kThorough = 2;

struct Tables {
  int quick = 0, thorough = 0;
  ScaleTables tables{std::make_unique<Marked>(kThorough, 100, thorough),
                     std::make_unique<Marked>(kQuick, 10, quick), perf::Sends::ignored};
  cluster::Cluster machines = support::h100_nodes(4);
  Training training;
  Tables() {
    training.model = std::make_shared<const models::Model>(support::small_model());
    training.coefficients =
        std::make_shared<const perf::Coefficients>(support::round_coefficients());
  }
  Scaling of(int free, Effort* effort, Care care = Care::quick) {
    plan::Layout layout{4, {}};
    support::add_stage(layout, 8, 1, 2, 8, 0, 0);
    std::vector<GpuRef> gpus;
    for (int gpu = 0; gpu < free; ++gpu) gpus.push_back({1, gpu});
    return tables.of(training, layout, gpus, 64, machines, effort, care);
  }
};

}  // namespace

Test(scale_tables, rows_of_exact_jobs_whose_programs_take_chunks_have_some) {
  const ScaleTables tables(std::make_unique<planner::Incremental>());
  const cluster::Cluster machines = support::h100_nodes(2);
  Training training;
  training.model = std::make_shared<const models::Model>(support::small_model(16, 32));
  training.coefficients = std::make_shared<const perf::Coefficients>(support::round_coefficients());
  training.consistency = planner::Consistency::exact;
  plan::Layout layout{8, {}};
  for (int stage = 0; stage < 4; ++stage) support::add_stage(layout, 4, 1, 1, 4, 1, stage);
  const std::vector<GpuRef> free = {{1, 4}, {1, 5}, {1, 6}, {1, 7}};
  const auto last = [&] {
    const Scaling table = tables.of(training, layout, free, 64, machines);
    return table.layout(table.rows() - 1);
  };
  cr_assert_not(last().is_scheduled());
  training.takes_chunks = true;
  cr_assert_gt(last().chunks(), 1);
  cr_assert_neq(last().schedule, "");
  cr_assert_eq(last().stages[0].groups[0].node, 1, "on the job's own node");
}

Test(scale_tables, a_job_without_limit_gets_the_thorough_solvers_table_once) {
  Tables known;
  cr_assert_eq(known.of(1, nullptr).throughput(0), kThorough);
  cr_assert_eq(known.of(1, nullptr).throughput(0), kThorough);
  cr_assert_eq(known.thorough, 1);
  cr_assert_eq(known.quick, 0);
}

Test(scale_tables, a_decision_looks_around_quickly_and_asks_again_where_it_would_lend) {
  Tables known;
  Effort effort{1000, 1000};
  cr_assert_not(known.of(1, &effort).thorough());
  const Scaling better = known.of(1, &effort, Care::thorough);
  cr_assert(better.thorough());
  cr_assert_eq(better.throughput(0), kThorough);
  cr_assert_eq(effort.thorough, 900);
  cr_assert_eq(effort.any, 890);
  cr_assert(known.of(1, &effort).thorough(), "what is known thoroughly stays so");
  cr_assert_eq(known.thorough, 1);
  cr_assert_eq(known.quick, 1);
}

Test(scale_tables, spent_effort_leaves_what_is_known_and_a_later_decision_goes_on) {
  Tables known;
  Effort effort{100, 115};
  cr_assert(known.of(1, &effort, Care::thorough).thorough());
  cr_assert_not(known.of(2, &effort, Care::thorough).thorough(), "the quick one: 100 are spent");
  cr_assert_not(known.of(3, &effort).thorough(), "5 were left, and it took 10");
  cr_assert_not(effort.allows_thorough());
  cr_assert_eq(known.of(4, &effort).rows(), 0, "all is spent");
  cr_assert_eq(known.of(2, &effort).throughput(0), kQuick, "known");
  Effort next{100, 1000};
  cr_assert(known.of(2, &next, Care::thorough).thorough());
  cr_assert_gt(known.of(4, &next).rows(), 0);
}
