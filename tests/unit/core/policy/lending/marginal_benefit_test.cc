// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/marginal_benefit.h"

#include <criterion/criterion.h>

#include "core/plan/validate.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/lending/gpu_sizes.h"
#include "core/policy/lending/swell.h"
#include "core/policy/registry.h"
#include "support/views.h"

using namespace swell;
using namespace swell::policy;
using namespace support;

namespace {

MarginalBenefit::Options with_aggressiveness(double lambda) {
  MarginalBenefit::Options options;
  options.aggressiveness = lambda;
  return options;
}

Decisions decide(const ClusterView& view) { return MarginalBenefit().decide(view); }
/// Lends whatever helps at all: tau is next to nothing.
Decisions decide_eagerly(const ClusterView& view) {
  return MarginalBenefit(with_aggressiveness(50)).decide(view);
}

const plan::Layout* plan_of(const Decisions& decisions, JobId job) {
  for (const NewPlan& plan : decisions.plans)
    if (plan.job == job) return &plan.layout;
  return nullptr;
}

/// Two jobs of 2 GPUs on nodes of their own: 1 scales well, 2 does not.
ClusterView two_jobs(int nodes = 2) {
  ClusterView view = idle_cluster(nodes);
  know_machines(view);
  view.jobs.reserve(4);
  profile(add_job(view, 1, 0, 2), small_model(), light_coefficients());
  profile_poor(add_job(view, 2, 1, 2));
  return view;
}

}  // namespace

Test(marginal_benefit, b_is_1_for_linear_scaling_whatever_the_step) {
  cr_assert(near(policy::marginal_benefit(8, 8, 1.0, 2.0), 1.0));
  cr_assert(near(policy::marginal_benefit(8, 2, 1.0, 1.25), 1.0));
  cr_assert(near(policy::marginal_benefit(8, 8, 1.0, 1.5), 0.5));
}

Test(marginal_benefit,
     the_benefit_of_a_doubling_is_the_same_for_one_large_step_and_its_small_ones) {
  // Each doubling makes it 1.8 times as fast.
  cr_assert(near(benefit_of_a_doubling(4, 8, 1.0, 1.8), 0.8));
  cr_assert(near(benefit_of_a_doubling(4, 16, 1.0, 1.8 * 1.8), 0.8));
  cr_assert_eq(benefit_of_a_doubling(4, 8, 1.0, 0.9), 0);
}

Test(marginal_benefit, idle_gpus_go_to_the_job_that_benefits_most) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  view.jobs.reserve(2);
  profile_poor(add_job(view, 1, 0, 2));
  profile(add_job(view, 2, 0, 2), small_model(), light_coefficients());
  view.jobs[1].max_gpus = 4;
  const Decisions decisions = decide_eagerly(view);
  cr_assert_eq(granted(decisions, 2), 2, "all it may have");
}

Test(marginal_benefit, comes_with_a_valid_plan_over_what_the_job_then_has) {
  const ClusterView view = two_jobs();
  const Decisions decisions = decide(view);
  const plan::Layout* layout = plan_of(decisions, 1);
  cr_assert_not_null(layout);
  cr_assert_eq(layout->gpu_count(), 2 + granted(decisions, 1));
  const auto valid = plan::validate(plan::name_all(*layout, *view.machines),
                                    *view.jobs[0].training->model, *view.machines);
  cr_assert(bool(valid), "%s", valid ? "" : valid.error().message().c_str());
}

Test(marginal_benefit, rounds_are_merged_into_one_grant_a_node_and_one_plan) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  profile(add_job(view, 1, 0, 1), small_model(), light_coefficients());
  view.jobs[0].max_gpus = 8;
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.grants.size(), 1u);
  cr_assert_eq(decisions.plans.size(), 1u);
  cr_assert_gt(granted(decisions, 1), 1, "more than one round doubles to");
}

Test(marginal_benefit, nothing_below_tau_is_lent) {
  // Basic demand holds 12 of 16 GPUs: tau is 0.75, which a job that scales badly does not reach.
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.jobs.reserve(2);
  profile_poor(add_job(view, 1, 0, 4));
  add_job(view, 2, 1, 8).may_grow = false;
  cr_assert_eq(granted(MarginalBenefit(with_aggressiveness(1)).decide(view), 1), 0);
  cr_assert_eq(granted(MarginalBenefit(with_aggressiveness(2)).decide(view), 1), 4);
}

Test(marginal_benefit, expansions_that_fall_below_tau_are_reclaimed_if_by_more_than_a_little) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.jobs.reserve(2);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  lend(view, job, 11, 0, 4);
  profile_poor(job);
  add_job(view, 2, 1, 8).may_grow = false;
  cr_assert(MarginalBenefit(with_aggressiveness(1)).decide(view).reclaims.empty(), "0.70 of 0.75");
  const Decisions decisions = MarginalBenefit(with_aggressiveness(0.5)).decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 11u);
  cr_assert_eq(decisions.reclaims[0].needed_by, 0u);
  cr_assert_not_null(plan_of(decisions, 1), "back on its basic GPUs");
  cr_assert_eq(plan_of(decisions, 1)->gpu_count(), 4);
}

Test(marginal_benefit, just_lent_gpus_are_not_reclaimed) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  ElasticJobView& job = add_job(view, 1, 0, 2);
  lend(view, job, 11, 0, 6);
  profile(job, small_model(), light_coefficients());
  cr_assert(decide(view).reclaims.empty());
}

Test(marginal_benefit, a_waiting_job_gets_back_the_gpus_that_help_least) {
  ClusterView view = two_jobs(4);
  view.jobs[0].training = view.jobs[1].training = nullptr;
  lend(view, view.jobs[0], 11, 2, 8);
  lend(view, view.jobs[1], 12, 3, 8);
  profile(view.jobs[0], small_model(), light_coefficients());
  profile_poor(view.jobs[1]);
  view.queue.push_back(pending(9, 1, 8));
  view.order_wanted = true;
  const Decisions decisions = decide_eagerly(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 12u);
  cr_assert_eq(decisions.reclaims[0].needed_by, 9u);
  cr_assert_eq(decisions.reclaim_order, (std::vector<JobId>{12, 11}));
}

Test(marginal_benefit, companions_would_go_by_what_they_bring_whether_anybody_waits_or_not) {
  ClusterView view = two_jobs(4);
  view.jobs[0].training = view.jobs[1].training = nullptr;
  lend(view, view.jobs[0], 11, 2, 8);
  lend(view, view.jobs[1], 12, 3, 8);
  profile_poor(view.jobs[0]);
  profile(view.jobs[1], small_model(), light_coefficients());
  view.order_wanted = true;
  cr_assert_eq(decide_eagerly(view).reclaim_order, (std::vector<JobId>{11, 12}));
  cr_assert_eq(Swell().decide(view).reclaim_order, (std::vector<JobId>{11, 12}));
}

Test(marginal_benefit, no_more_is_reclaimed_than_a_waiting_job_needs) {
  ClusterView view = two_jobs(4);
  lend(view, view.jobs[1], 12, 2, 4);
  lend(view, view.jobs[1], 13, 2, 4);
  lend(view, view.jobs[1], 14, 3, 8);
  profile_poor(view.jobs[1]);
  view.queue.push_back(pending(9, 1, 8));
  view.nodes[0].free = view.nodes[1].free = {};
  int taken = 0;
  for (const Reclaim& reclaim : decide_eagerly(view).reclaims)
    if (reclaim.needed_by == 9) taken += reclaim.companion == 14 ? 8 : 4;
  cr_assert_eq(taken, 8);
}

Test(marginal_benefit, expansions_scattered_over_nodes_leave_the_one_node_where_least_is_lost) {
  // 4 idle and 4 lent on each of two nodes; a pending job of 8 fits once one of them is cleared.
  ClusterView view = two_jobs(4);
  lend(view, view.jobs[0], 11, 2, 4);
  lend(view, view.jobs[1], 12, 3, 4);
  profile(view.jobs[0], small_model(), light_coefficients());
  profile_poor(view.jobs[1]);
  view.queue.push_back(pending(9, 1, 8));
  const Decisions decisions = decide_eagerly(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 12u);
}

Test(marginal_benefit, a_blocked_gang_reclaims_nothing) {
  ClusterView view = two_jobs();
  lend(view, view.jobs[0], 11, 0, 4);
  profile(view.jobs[0], small_model(), light_coefficients());
  view.queue.push_back(pending(9, 2, 8));  // basic allocations stand in its way
  cr_assert(decide(view).reclaims.empty());
}

Test(marginal_benefit, never_lends_gpus_that_a_pending_job_could_start_on) {
  ClusterView view = two_jobs(3);
  view.queue.push_back(pending(9, 1, 8));
  for (const Grant& grant : decide_eagerly(view).grants) cr_assert_neq(grant.node, 2);
}

Test(marginal_benefit, respects_the_jobs_limits) {
  ClusterView view = two_jobs(3);
  ElasticJobView& job = view.jobs[0];
  job.max_gpus = 12;
  job.sizes = {2, 4, 7, 11};
  job.excluded_nodes = {0};
  view.nodes[2].settling = true;
  view.jobs[1].may_grow = false;
  view.nodes[1].free.cpus = 30;  // three workers of 8
  const Decisions decisions = decide_eagerly(view);
  cr_assert_eq(decisions.grants.size(), 1u);
  cr_assert_eq(decisions.grants[0].node, 1);
  cr_assert(decisions.grants[0].lent == (Resources{2, 16, 16000}),
            "7 in all would take five workers");
}

Test(marginal_benefit, lends_whole_workers) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  ElasticJobView& job = add_job(view, 1, 0, 1);
  profile(job, small_model(), light_coefficients());
  job.per_worker = {3, 8, 8000};
  job.max_gpus = 8;
  cr_assert_eq(granted(decide_eagerly(view), 1) % 3, 0);
  cr_assert_eq(granted(decide_eagerly(view), 1), 0,
               "a step doubles at most: 3 more are too many for 1");
}

Test(marginal_benefit, other_types_of_gpu_are_left_to_others) {
  ClusterView view = two_jobs();
  view.jobs[0].gpu_types = {"a100"};
  cr_assert_eq(granted(decide_eagerly(view), 1), 0);
}

Test(marginal_benefit, a_job_that_gives_back_does_not_grow_in_the_same_decision) {
  ClusterView view = two_jobs(3);
  lend(view, view.jobs[0], 11, 2, 8);
  profile(view.jobs[0], small_model(), light_coefficients());
  view.queue.push_back(pending(9, 1, 8));
  const Decisions decisions = decide_eagerly(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(granted(decisions, 1), 0);
}

Test(marginal_benefit, jobs_without_a_profile_get_what_is_left) {
  ClusterView view = two_jobs(3);
  view.jobs[0].max_gpus = 4;
  view.jobs[1].training = nullptr;
  view.jobs[1].max_gpus = 6;
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 2);
  cr_assert_eq(granted(decisions, 2), 4);
  cr_assert_null(plan_of(decisions, 2));
}

Test(marginal_benefit, jobs_without_a_profile_lose_their_gpus_before_those_that_surely_gain) {
  ClusterView view = two_jobs(4);
  lend(view, view.jobs[0], 11, 2, 8);
  lend(view, view.jobs[1], 12, 3, 8);
  profile(view.jobs[0], small_model(), light_coefficients());
  view.jobs[1].training = nullptr;
  view.queue.push_back(pending(9, 1, 8));
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 12u);
}

Test(marginal_benefit, fairness_discounts_who_has_more_than_its_share) {
  // Job 1 has been lent 4 GPUs, job 2 none; both scale alike and 2 GPUs are idle on a third node.
  ClusterView view = idle_cluster(3);
  know_machines(view);
  view.jobs.reserve(2);
  ElasticJobView& rich = add_job(view, 1, 0, 4);
  lend(view, rich, 11, 0, 4);
  profile(rich, small_model(8, 256), light_coefficients());
  ElasticJobView& poor = add_job(view, 2, 1, 8);
  profile(poor, small_model(8, 256), light_coefficients());
  take(view, 2, {6, 48, 48000});
  MarginalBenefit::Options fair;
  fair.fairness = 2;
  const Decisions decisions = MarginalBenefit(fair).decide(view);
  cr_assert_eq(granted(decisions, 2), 2);
}

Test(marginal_benefit, the_benefit_of_a_grant_is_recorded_with_it) {
  const Decisions decisions = decide(two_jobs());
  cr_assert_not(decisions.grants.empty());
  // Basic demand holds 4 of 16 GPUs.
  for (const Grant& grant : decisions.grants) cr_assert_geq(grant.benefit, 0.25);
}

Test(marginal_benefit, recorded_benefits_decide_who_gives_back_and_not_new_predictions) {
  ClusterView view = two_jobs(4);
  view.jobs[0].training = view.jobs[1].training = nullptr;
  lend(view, view.jobs[0], 11, 2, 8);
  lend(view, view.jobs[1], 12, 3, 8);
  profile(view.jobs[0], small_model(), light_coefficients());
  profile_poor(view.jobs[1]);
  view.jobs[0].companions[0].benefit = 0.3;
  view.jobs[1].companions[0].benefit = 0.9;
  view.queue.push_back(pending(9, 1, 8));
  const Decisions decisions = decide_eagerly(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 11u, "job 2 scales worse, but was lent by more");
}

Test(marginal_benefit, gpus_lent_below_tau_are_reclaimed) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.jobs.reserve(2);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  lend(view, job, 11, 0, 4);
  profile(job, small_model(), light_coefficients());
  add_job(view, 2, 1, 8).may_grow = false;
  job.companions[0].benefit = 0.8;
  cr_assert(decide(view).reclaims.empty(), "tau is 0.75");
  job.companions[0].benefit = 0.6;
  cr_assert_eq(decide(view).reclaims.size(), 1u);
}

Test(marginal_benefit, gpus_of_several_types_are_as_large_as_their_speed) {
  // Node 0 has H100s, node 1 L20s of an eighth of their speed: 8 more L20 are one H100 more.
  ClusterView view = idle_cluster(2);
  std::vector<cluster::Node> nodes = h100_nodes(2, 8, 400e9).nodes();
  const auto h100 = *cluster::find_gpu_type("h100"), l20 = *cluster::find_gpu_type("l20");
  nodes[1].gpus.assign(8, 1);
  view.machines = std::make_shared<const cluster::Cluster>(
      cluster::Cluster::make("mixed", {h100, l20}, nodes).value());
  const GpuSizes sizes(view);
  const double ratio = l20.tflops(cluster::Precision::bf16) / h100.tflops(cluster::Precision::bf16);
  cr_assert(near(sizes.of(1, 0xFF) / sizes.of(0, 0xFF), ratio));
  cr_assert(near(sizes.each_on(1) / sizes.each_on(0), ratio));
  // Basic demand on all L20s is a tenth of the cluster, not a half: tau falls with it.
  ElasticJobView& job = add_job(view, 1, 0, 1);
  perf::Coefficients k = light_coefficients();
  k.types.push_back(k.types[0]);
  k.types[1].comp_s /= ratio;
  profile(job, small_model(), k);
  job.max_gpus = 2;
  job.companions.clear();
  const Decisions before = decide(view);
  cr_assert_eq(granted(before, 1), 1);
  cr_assert_gt(before.grants[0].benefit, 0.8, "an H100 as fast as its own: %g",
               before.grants[0].benefit);
}

Test(marginal_benefit, fairness_is_an_option_of_the_registry) {
  ClusterView view = idle_cluster(3);
  know_machines(view);
  view.jobs.reserve(2);
  ElasticJobView& rich = add_job(view, 1, 0, 4);
  lend(view, rich, 11, 0, 4);
  profile(rich, small_model(8, 256), light_coefficients());
  ElasticJobView& poor = add_job(view, 2, 1, 8);
  profile(poor, small_model(8, 256), light_coefficients());
  take(view, 2, {6, 48, 48000});
  const auto fair = make_policy("marginal-benefit", {.aggressiveness = 1, .fairness = 2});
  cr_assert_eq(granted((*fair)->decide(view), 2), 2);
}

Test(marginal_benefit, equal_views_give_equal_decisions_with_and_without_memory) {
  const ClusterView view = two_jobs(3);
  const MarginalBenefit policy;
  const Decisions first = policy.decide(view), again = policy.decide(view), fresh = decide(view);
  cr_assert(first.grants == again.grants && first.grants == fresh.grants);
  cr_assert(*plan_of(first, 1) == *plan_of(again, 1) && *plan_of(first, 1) == *plan_of(fresh, 1));
}
