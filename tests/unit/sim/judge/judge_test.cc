// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/judge.h"

#include <criterion/criterion.h>

#include "support/judged.h"

using namespace swell;
using namespace swell::sim::judge;
using support::near;

namespace {

Hardware slow_devices() {
  Hardware hardware;
  hardware.devices = {{100, 50, 1e9}};
  hardware.activation_bytes = 1;
  hardware.gradient_bytes = 0;
  return hardware;
}

}  // namespace

Test(judge, one_gpu_does_one_pass_after_the_other) {
  plan::Layout layout{4, {}};
  support::add_stage(layout, 10, 1, 1, 2);
  const Iteration done = execute(layout, support::h100_nodes(1), slow_devices(), true);
  // 2 samples of 10 layers: 0.2 s forward, 0.4 s backward, four times.
  cr_assert(near(done.seconds, 4 * 0.6, 1e-6), "%g", done.seconds);
  cr_assert_eq(done.operations.size(), 9u, "eight passes and an optimizer");
  cr_assert_lt(done.idle_share, 1e-6);
}

Test(judge, equal_stages_leave_the_bubble_of_1f1b) {
  for (int pp : {2, 4}) {
    plan::Layout layout{8, {}};
    for (int i = 0; i < pp; ++i) support::add_stage(layout, 5, 1, 1, 2, 0, i);
    const Iteration done = execute(layout, support::h100_nodes(1), slow_devices());
    cr_assert(near(done.seconds, (8 + pp - 1) * 0.3, 1e-3), "pp %d: %g", pp, done.seconds);
    cr_assert(near(done.idle_share, (pp - 1) / (8.0 + pp - 1), 1e-2), "pp %d: %g", pp, done.idle_share);
  }
}

Test(judge, no_pass_begins_before_what_it_needs) {
  const auto cluster = support::h100_nodes(2, 8, 1e9);
  plan::Layout layout{6, {}};
  support::add_stage(layout, 3, 2, 2, 3, 0);
  support::add_stage(layout, 4, 1, 3, 2, 1);
  support::add_stage(layout, 2, 4, 1, 6, 0, 4);
  Hardware hardware = slow_devices();
  hardware.activation_bytes = 1e6;
  hardware.gradient_bytes = 1e7;
  const Iteration done = execute(layout, cluster, hardware, true);
  double forward_end[3][6] = {}, backward_end[3][6] = {};
  using Kind = Operation::Kind;
  for (const Operation& op : done.operations) {
    double& end = op.kind == Kind::forward ? forward_end[op.stage][op.micro_batch] : backward_end[op.stage][op.micro_batch];
    if (op.kind == Kind::forward || op.kind == Kind::backward) end = std::max(end, op.end_s);
  }
  int passes = 0;
  for (const Operation& op : done.operations) {
    cr_assert_leq(op.end_s, done.seconds);
    if (op.kind == Kind::forward && op.stage == 2) cr_assert_gt(op.begin_s, forward_end[1][op.micro_batch], "one group of stage 2 needs all of stage 1");
    if (op.kind == Kind::backward && op.stage == 1) cr_assert_gt(op.begin_s, backward_end[2][op.micro_batch]);
    if (op.kind == Kind::backward) cr_assert_geq(op.begin_s, forward_end[op.stage][op.micro_batch] - 1.0);
    if (op.kind == Kind::forward || op.kind == Kind::backward) ++passes;
  }
  cr_assert_eq(passes, 2 * 6 * (2 + 3 + 1));
}

Test(judge, gradients_cost_what_they_do_not_overlap) {
  plan::Layout layout{4, {}};
  support::add_stage(layout, 10, 1, 2, 1);
  Hardware hardware = slow_devices();
  const double without = execute(layout, support::h100_nodes(1), hardware).seconds;
  hardware.gradient_bytes = 4.5e9;  // 45 GB over 450 GB/s in two halves, there and back: 0.1 s
  const double with = execute(layout, support::h100_nodes(1), hardware).seconds;
  cr_assert(with - without > 0.03 - 1e-6 && with - without < 0.05, "%g", with - without);
}

// The performance model is scored here, never against itself.
Test(judge, a_thousand_random_plans_are_predicted_within_five_percent) {
  const auto judged = support::judge_predictions(1000, 0.02);
  cr_assert_eq(judged.plans, 1000);
  cr_assert_leq(judged.mean, 0.05, "%g", judged.mean);
}

// 10 Gbit/s, and activations that take as long to send as a stage takes to compute.
Test(judge, agrees_over_a_slow_network_where_sends_are_counted) {
  const models::Model model{"wide", 12, 4096, 32, 32, 16384, false, true, 32000, 2048, 64, {}};
  const auto cluster = support::h100_nodes(4, 8, 1.25e9);
  const auto expected = perf::expected_coefficients(model, cluster);
  const Hardware hardware = make_hardware(model, cluster, [](double) { return 1.0; });
  double worst = 0, min_without = 1e9;
  for (int stages = 2; stages <= 4; ++stages) {
    plan::Layout layout{16, {}};
    for (int i = 0; i < stages; ++i) support::add_stage(layout, 12 / stages, 4, 2, 2, i);
    const auto coefficients = perf::solve(profile_of(layout, model, cluster, expected, hardware), cluster);
    cr_assert(coefficients.ok());
    const double true_s = execute(layout, cluster, hardware).seconds;
    const auto off = [&](perf::Sends sends) {
      return perf::PerformanceModel(model, cluster, *coefficients, sends).iteration_time(layout).total() / true_s - 1;
    };
    worst = std::max(worst, std::abs(off(perf::Sends::counted)));
    min_without = std::min(min_without, std::abs(off(perf::Sends::ignored)));
  }
  cr_assert(worst < 0.05, "%.3f", worst);
  cr_assert(min_without > 0.10, "%.3f", min_without);
}
