// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/step_reports.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::launcher;

namespace {

control::WorkerSteps made(std::int64_t steps, std::int64_t total = 0) {
  control::WorkerSteps report;
  report.steps = steps;
  report.total = total;
  return report;
}

control::Status status_of(const StepReports& reports) {
  control::Status status;
  reports.fill(status);
  return status;
}

}  // namespace

Test(step_reports, the_controller_hears_at_once_of_the_first_step_and_of_the_end) {
  StepReports reports(1000);
  cr_assert_eq(status_of(reports).total_steps, 1000, "as its user said");
  cr_assert(reports.take({0, 0}, made(1)));
  cr_assert_not(reports.take({0, 0}, made(2)));
  cr_assert(reports.take({3, 0}, made(2, 800)), "rank 0 may be on any node");
  cr_assert_not(reports.take({3, 0}, made(3, 800)));
  cr_assert_eq(status_of(reports).total_steps, 800);
  cr_assert_eq(status_of(reports).steps, 2, "of the first node");
}

Test(step_reports, the_cost_of_a_change_is_told_once_by_the_first_node) {
  StepReports reports(0);
  const auto pass = [&](int node, int generation, std::int64_t step, double at) {
    control::WorkerSteps report = made(step);
    report.generation = generation;
    return reports.take_time({node, 0}, report, at);
  };
  for (int step = 1; step <= 20; ++step) cr_assert_not(pass(0, 0, step, step).has_value());
  reports.changed(20.5, 1, 20);
  int told = 0;
  double cost = 0;
  for (int step = 21; step <= 80; ++step) {
    cr_assert_not(pass(1, 1, step, step + 30).has_value());
    if (const auto known = pass(0, 1, step, step + 30)) {
      ++told;
      cost = known->lost_s;
      cr_assert_eq(known->generation, 1);
    }
  }
  cr_assert_eq(told, 1);
  cr_assert_float_eq(cost, 30, 1.5, "%g", cost);
  cr_assert_float_eq(status_of(reports).lost_s, cost, 1e-9);
  cr_assert_eq(status_of(reports).lost_generation, 1);
}
