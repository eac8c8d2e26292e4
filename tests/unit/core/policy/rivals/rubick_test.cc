// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/rubick.h"

#include <criterion/criterion.h>

#include "core/policy/rivals/elastic_shares.h"
#include "support/rival_views.h"

using namespace swell;
using namespace swell::policy;
using support::RivalView;

namespace {

models::Model named(const char* name) { return models::find_model(name)->model; }

const perf::Combination kUsers{1, 4, 1, 16};

}  // namespace

Test(rubick, the_sensitivity_curve_has_the_best_plan_for_every_number_of_gpus) {
  RivalView on(support::h100_nodes(2));
  const auto training = on.training(named("llama2-13b"), {1, 4, 4, 16});
  JobModel model(training, on.machines);
  const Curve curve = model.curve(0, {}, 16);
  cr_assert_geq(curve.size(), 4u);
  for (std::size_t i = 1; i < curve.size(); ++i) {
    cr_assert_gt(curve[i].gpus, curve[i - 1].gpus);
    cr_assert_gt(curve[i].throughput, curve[i - 1].throughput);
  }
  // Nothing of the user's cell is better than the curve at as many GPUs.
  for (const planner::SymmetricRow& users : model.curve(0, users_cell(*training), 16)) {
    const planner::SymmetricRow* at = nullptr;
    for (const planner::SymmetricRow& point : curve)
      if (point.gpus <= users.gpus) at = &point;
    cr_assert(at && at->throughput >= users.throughput * (1 - 1e-9));
  }
}

Test(rubick, the_minimum_is_the_fewest_gpus_as_fast_as_the_users_plan) {
  // On a slow network the user's DP over two nodes is worse than a better plan with fewer GPUs.
  RivalView on(support::h100_nodes(2, 8, 1e8));
  const auto training = on.training(named("llama2-7b"), {1, 16, 1, 16});
  on.pend(1, training, 32);
  const auto jobs = contenders(on.view);
  CurveCache curves;
  ElasticShares shares(on.view, jobs, curves);
  const ElasticShare& share = shares.all()[0];
  const int min = share.min_gpus(0);
  cr_assert(min > 0 && min < 16, "%d", min);
  for (const planner::SymmetricRow& point : *share.curve(0))
    cr_assert((point.throughput >= share.users_throughput) == (point.gpus >= min));
}

Test(rubick, running_jobs_are_shrunk_for_a_pending_one_but_not_below_their_minimum) {
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-1.3b"), kUsers);
  on.run(1, *training, {1, 8, 1, 16}, 8).started_s = 0;
  on.pend(2, training, 8);
  on.pend(3, training, 8);
  auto has = support::carry_out(on, Rubick().decide(on.view));
  cr_assert_eq(has[1], 4);
  cr_assert_eq(has[2] + has[3], 4, "one of them has to wait");
}

Test(rubick, the_flattest_curve_gives_first) {
  RivalView on(support::h100_nodes(3, 8, 5e9));
  const auto flat = on.training(named("gpt2-350m"), {1, 8, 1, 16});
  const auto steep = on.training(named("llama2-13b"), {1, 1, 4, 64});
  on.run(1, *flat, {1, 16, 1, 16}, 24).started_s =
      0;  // over two slow nodes: 16 hardly better than 8
  on.run(2, *steep, {1, 2, 4, 32}, 24).started_s = 0;
  on.pend(3, on.training(named("gpt2-1.3b"), kUsers), 4);
  auto has = support::carry_out(on, Rubick().decide(on.view));
  cr_assert_eq(has[3], 4);
  cr_assert_geq(has[2], 8);
  cr_assert_lt(has[1], 16);
}

Test(rubick, a_lately_reconfigured_job_is_left_alone_until_a_job_has_waited_long) {
  for (const double waited : {100.0, 300.0}) {
    RivalView on(support::h100_nodes(1));
    const auto training = on.training(named("gpt2-1.3b"), kUsers);
    ElasticJobView& job = on.run(1, *training, {1, 8, 1, 16}, 8);
    job.started_s = 9500;  // 500 s: one restart of 26 s or more is above 3 %
    job.reconfigurations = 1;
    on.pend(2, training, 8, 10000 - waited);
    auto has = support::carry_out(on, Rubick().decide(on.view));
    cr_assert_eq(has[2], waited > 200 ? 4 : 0);
  }
}

Test(rubick, idle_gpus_go_to_the_steepest_slope) {
  RivalView on(support::h100_nodes(2, 8, 40e9));
  const auto flat = on.training(named("gpt2-350m"), {1, 4, 1, 16});
  const auto steep = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  on.run(1, *steep, kUsers, 8).started_s = 0;
  on.run(2, *flat, kUsers, 4).started_s = 0;  // may not grow
  on.view.jobs[1].max_gpus = 4;
  on.view.jobs[1].may_grow = false;
  auto has = support::carry_out(on, Rubick().decide(on.view));
  cr_assert_eq(has[1], 8);
  cr_assert_eq(has[2], 4);
}

Test(rubick, a_job_with_a_plan_that_no_other_reaches_starts_with_what_it_asks_for) {
  for (const int max : {20, 32}) {  // 24 GPUs would be as fast as the user's 16
    RivalView on(support::h100_nodes(8, 8, 10e9));
    const auto training = on.training(named("gpt2-1.3b"), {2, 8, 1, 16});
    // Better than the curve's split, which is the best without what stages send.
    training->basic.stages[0].layers -= 1;
    training->basic.stages[1].layers += 1;
    on.pend(1, training, max);
    const auto jobs = contenders(on.view);
    CurveCache curves;
    ElasticShares shares(on.view, jobs, curves);
    const ElasticShare& share = shares.all()[0];
    for (const planner::SymmetricRow& point : *share.curve(0))
      cr_assert(point.gpus >= 24 || point.throughput < share.users_throughput * (1 - 1e-9));
    cr_assert_eq(share.min_gpus(0), 16);
    cr_assert(shares.start(0, 0));
    cr_assert_eq(planner::count(share.gpus), 16);
  }
}
