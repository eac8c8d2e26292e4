// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/flextrain.h"

#include <criterion/criterion.h>

#include "core/policy/registry.h"
#include "support/views.h"

using namespace swell;
using namespace swell::policy;
using namespace support;

namespace {

Decisions decide(const ClusterView& view, FlexTrain::Options options = {}) {
  return FlexTrain(std::move(options)).decide(view);
}

/// A job of 4 GPUs on the first of `nodes` idle nodes that scales well.
ClusterView one_job(int nodes = 4) {
  ClusterView view = idle_cluster(nodes);
  know_machines(view);
  view.now_s = 100000;
  view.jobs.reserve(4);
  profile(add_job(view, 1, 0, 4), small_model(), light_coefficients());
  return view;
}

/// `count` submissions of 64 GPUs in the last hour.
void submit(ClusterView& view, int count) {
  view.submissions = std::make_shared<const std::vector<Submission>>(
      static_cast<std::size_t>(count), Submission{view.now_s - 3600, 64});
}

int reclaimed_from(const Decisions& decisions, JobId job) {
  int count = 0;
  for (const Reclaim& reclaim : decisions.reclaims) count += reclaim.job == job ? 1 : 0;
  return count;
}

}  // namespace

Test(flextrain, lends_the_idle_size_of_highest_throughput_up_to_the_maximum) {
  const ClusterView view = one_job();
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 12, "max is four times the 4 GPUs");
  cr_assert_eq(decisions.plans.size(), 1u);
  cr_assert_eq(decisions.plans[0].layout.gpu_count(), 16);
}

Test(flextrain, lends_nothing_while_any_job_is_pending) {
  ClusterView view = one_job();
  view.queue.push_back(pending(9, 8, 8));  // more than there is
  cr_assert(decide(view).grants.empty());
  view.queue[0].per_node.gpus = 0;
  cr_assert_eq(granted(decide(view), 1), 12, "it needs no GPUs");
  view.queue[0].whole_nodes = true;
  cr_assert(decide(view).grants.empty());
}

Test(flextrain, owed_gpus_are_lent_while_jobs_are_pending) {
  ClusterView view = one_job();
  view.jobs[0].training = nullptr;
  view.jobs[0].wanted_gpus = 8;
  view.queue.push_back(pending(9, 8, 8));
  cr_assert_eq(granted(decide(view), 1), 4);
}

Test(flextrain, the_job_with_the_fewest_gpus_comes_first) {
  ClusterView view = idle_cluster(3);
  know_machines(view);
  view.jobs.reserve(2);
  profile(add_job(view, 1, 0, 8), small_model(), light_coefficients());
  profile(add_job(view, 2, 1, 4), small_model(), light_coefficients());
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 2), 12, "all that is idle");
  cr_assert_eq(granted(decisions, 1), 0);
  view.jobs.pop_back();
  cr_assert_gt(granted(decide(view), 1), 0, "alone, the other would get some");
}

Test(flextrain, sizes_without_a_significant_gain_are_left_out) {
  ClusterView view = one_job();
  profile_poor(view.jobs[0]);
  FlexTrain::Options strict;
  strict.significant = 1;  // at least twice as fast
  cr_assert_eq(granted(decide(view, strict), 1), 0);
  cr_assert_gt(granted(decide(view), 1), 0);
}

Test(flextrain, sizes_of_which_the_second_prediction_says_otherwise_are_left_out) {
  FlexTrain::Options options;
  options.apart = 10;
  cr_assert_eq(granted(decide(one_job(), options), 1), 12);
  options.apart = 1 + 1e-6;  // the second one knows no synchronization, for example
  cr_assert_eq(granted(decide(one_job(), options), 1), 0);
  const planner::RowFilter wanted{0, options.apart, 0.05};
  cr_assert(FlexTrain(options).row_filter() == wanted);
}

Test(flextrain, does_not_lend_where_large_jobs_are_likely_to_come_first) {
  ClusterView view = one_job();
  submit(view, 3);
  cr_assert_eq(granted(decide(view), 1), 12, "three a shift are few");
  cr_assert(decide(view).unlikely.empty());
  submit(view, 100'000);
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 0);
  cr_assert_eq(decisions.unlikely.size(), 1u);
  cr_assert_eq(decisions.unlikely[0].job, 1u);
  cr_assert_eq(decisions.unlikely[0].submissions, 100'000);
  cr_assert_leq(decisions.unlikely[0].chance, 0.6);
  FlexTrain::Options any;
  any.chance = 0;
  cr_assert_eq(granted(decide(view, any), 1), 12, "0 turns the rule off");
  FlexTrain::Options larger;
  larger.arrival_gpus = 65;
  cr_assert_eq(granted(decide(view, larger), 1), 12, "none is so large");
}

Test(flextrain, a_job_without_a_profile_is_taken_to_scale_linearly) {
  ClusterView view = one_job();
  view.jobs[0].training = nullptr;
  cr_assert_eq(granted(decide(view), 1), 12);
  // 25 s for a start, four times as fast: from 441 submissions in 8 h on, the chance is below 0.6.
  submit(view, 400);
  cr_assert_eq(granted(decide(view), 1), 12);
  submit(view, 480);
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 0);
  cr_assert_eq(decisions.unlikely.size(), 1u);
  view.jobs[0].measured_cost = redeploy::Cost{0, 5};
  cr_assert_eq(granted(decide(view), 1), 12, "its restarts take 5 s");
}

Test(flextrain, a_chance_of_one_is_enough_where_nobody_comes) {
  FlexTrain::Options sure;
  sure.chance = 1;
  cr_assert_eq(granted(decide(one_job(), sure), 1), 12);
}

Test(flextrain, reclaims_from_the_job_that_gained_most) {
  ClusterView view = idle_cluster(3);
  know_machines(view);
  view.jobs.reserve(2);
  ElasticJobView& little = add_job(view, 1, 0, 4);
  lend(view, little, 11, 2, 4);
  profile(little, small_model(), light_coefficients());
  ElasticJobView& much = add_job(view, 2, 1, 2);
  lend(view, much, 12, 2, 4);
  profile(much, small_model(), light_coefficients());
  view.queue.push_back(pending(9, 1, 4));
  for (NodeIndex node : {0, 1}) {
    view.nodes[static_cast<std::size_t>(node)].free = {};
    view.nodes[static_cast<std::size_t>(node)].free_gpus = 0;
  }
  const Decisions decisions = decide(view);
  cr_assert_eq(reclaimed_from(decisions, 2), 1, "three times its GPUs, against twice");
  cr_assert_eq(reclaimed_from(decisions, 1), 0, "and no more than needed");
}

Test(flextrain, reclaims_nothing_where_all_lent_gpus_would_not_suffice) {
  ClusterView view = one_job(3);
  lend(view, view.jobs[0], 11, 1, 8);
  profile(view.jobs[0], small_model(), light_coefficients());
  view.queue.push_back(pending(9, 3, 8));
  cr_assert(decide(view).reclaims.empty());
}

Test(flextrain, a_job_that_keeps_some_lent_gpus_gets_its_best_plan_on_them) {
  ClusterView view = one_job(3);
  lend(view, view.jobs[0], 11, 1, 8);
  lend(view, view.jobs[0], 12, 2, 8);
  profile(view.jobs[0], small_model(), light_coefficients());
  view.queue.push_back(pending(9, 1, 8));
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.plans.size(), 1u);
  cr_assert_leq(decisions.plans[0].layout.gpu_count(), 12);
  cr_assert_gt(decisions.plans[0].layout.gpu_count(), 4);
}

Test(flextrain, its_options_come_from_the_registry) {
  PolicyOptions options;
  options.arrivals = {600, 8, 0.9};
  auto made = make_policy("flextrain", options);
  cr_assert(made.ok());
  ClusterView view = one_job();
  view.jobs[0].training = nullptr;
  view.submissions = std::make_shared<const std::vector<Submission>>(4, Submission{99900, 8});
  // 4 in 600 s, 25 s, four times as fast: exp(-0.22).
  cr_assert((*made)->decide(view).grants.empty());
  cr_assert_eq(granted(decide(view), 1), 12, "by default jobs of 8 GPUs do not count");
  options.parameters = {{"chance", 2}};
  cr_assert_not(make_policy("flextrain", options).ok());
}
