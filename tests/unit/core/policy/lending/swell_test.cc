// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/swell.h"

#include <criterion/criterion.h>
#include <random>

#include "core/perf/performance_model.h"
#include "core/policy/lending/fewest_first.h"
#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/lending/swell_views.h"
#include "core/policy/measured_speeds.h"

using namespace swell;
using namespace swell::policy;
using namespace support;
using namespace swell_views;

namespace {

/// A running job that has done no step yet: no profile, so that other policies leave it alone.
ElasticJobView& add_starting(ClusterView& view, JobId id, NodeIndex node, int gpus) {
  ElasticJobView& job = add_job(view, id, node, gpus);
  profile(job, small_model(), light_coefficients())->coefficients = nullptr;
  job.may_grow = false;
  job.starting = true;
  return job;
}

/// A job of 8 GPUs and 5.6 GB of state on one node, and an idle one behind a network of 100 MB/s:
/// to move there takes 90 s, and it is twice as fast then.
ClusterView slow_to_move(double age_s) {
  ClusterView view = idle_cluster(2);
  know_machines(view, 1e8);
  view.now_s = 100000;
  ElasticJobView& job = add_job(view, 1, 0, 8);
  job.max_gpus = 16;
  job.started_s = view.now_s - age_s;
  profile(job, small_model(), light_coefficients(), 1);
  return view;
}

/// An old job without a limit that has all of four nodes, but for the 4 GPUs on which a second one
/// has just started where `newcomer`, and which are idle otherwise.
ClusterView one_has_four_nodes(bool newcomer) {
  ClusterView view = idle_cluster(4);
  know_machines(view);
  view.now_s = 10000;
  view.jobs.reserve(2);
  ElasticJobView& large = add_job(view, 1, 0, 8);
  large.max_gpus = 32;
  for (NodeIndex node : {1, 2}) lend(view, large, static_cast<JobId>(10 + node), node, 8);
  lend(view, large, 13, 3, 4);
  profile(large, small_model(), light_coefficients());
  if (newcomer) {
    ElasticJobView& young = add_job(view, 2, 3, 4);
    young.max_gpus = 32;
    young.started_s = 9990;
    profile(young, small_model(), light_coefficients());
  }
  return view;
}

int reclaimed(const ClusterView& view, const Decisions& decisions, JobId needed_by) {
  int gpus = 0;
  for (const Reclaim& reclaim : decisions.reclaims)
    for (const CompanionView& companion : view.jobs[0].companions)
      if (companion.id == reclaim.companion && reclaim.needed_by == needed_by)
        gpus += companion.held.gpus;
  return gpus;
}

}  // namespace

Test(swell, a_job_without_a_limit_gives_back_for_a_newcomer_in_one_decision) {
  ClusterView view = one_has_four_nodes(true);
  const Decisions decisions = decide(view);
  cr_assert_geq(reclaimed(view, decisions, 0), 4, "enough to double the newcomer");
  // Once the grace is over they are idle, and the next decision lends them to the newcomer.
  for (const Reclaim& reclaim : decisions.reclaims)
    std::erase_if(view.jobs[0].companions, [&](const CompanionView& companion) {
      if (companion.id != reclaim.companion) return false;
      NodeView& node = view.nodes[static_cast<std::size_t>(companion.node)];
      node.free += companion.held;
      node.free_gpus |= companion.gpus;
      return true;
    });
  profile(view.jobs[0], small_model(), light_coefficients());
  view.jobs[0].may_grow = false;  // for GrowthInterval after a loss
  cr_assert_geq(granted(decide(view), 2), 4);
}

Test(swell, a_job_without_a_limit_gives_all_that_a_pending_job_needs_in_one_decision) {
  ClusterView view = one_has_four_nodes(false);
  view.queue.push_back(pending(9, 2, 8));
  cr_assert_geq(reclaimed(view, decide(view), 9), 12, "4 of the 16 are idle");
  view.queue[0] = pending(9, 3, 8);
  cr_assert_geq(reclaimed(view, decide(view), 9), 20);
}

Test(swell, idle_gpus_are_lent_though_they_bring_less_than_tau) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.jobs.reserve(2);
  profile_poor(add_job(view, 1, 0, 4));
  add_job(view, 2, 1, 8).may_grow = false;
  cr_assert_eq(granted(decide(view), 1), 4);
}

Test(swell, rows_are_left_out_by_the_rules_that_are_turned_on) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.jobs.reserve(1);
  profile(add_job(view, 1, 0, 4), small_model(), light_coefficients());
  const auto lent = [&](double apart, double significant) {
    Swell::Options options;
    options.apart = apart;
    options.significant = significant;
    return granted(Swell(options).decide(view), 1);
  };
  cr_assert_eq(lent(0, 0), 12);
  cr_assert_eq(lent(10, 0.05), 12);
  cr_assert_eq(lent(1 + 1e-6, 0), 0);
  cr_assert_not(Swell().row_filter().has_rules());
  profile_poor(view.jobs[0]);
  cr_assert_gt(lent(0, 0), 0);
  cr_assert_eq(lent(0, 1), 0, "nothing doubles its speed");
}

Test(swell, taken_from_others_are_rows_that_stay_alone) {
  const auto reclaimed = [](double apart) {
    Swell::Options options;
    options.apart = apart;
    return Swell(options).decide(one_has_all(0, 9990)).reclaims.size();
  };
  cr_assert_gt(reclaimed(0), 0u);
  cr_assert_eq(reclaimed(1 + 1e-6), 0u);
}

Test(swell, a_job_that_started_later_is_served_first) {
  cr_assert_eq(granted(decide(two_alike(0, 9900)), 2), 2);
}

// A job of two GPUs that are fifty times as slow as those of node3, with two of its own kind idle
// on node2, which come before in the order of taking.
Test(swell, a_node_that_the_plan_does_without_is_not_lent) {
  using namespace swell::cluster;
  ClusterView view = idle_cluster(3);
  std::vector<Node> nodes;
  for (const int type : {0, 0, 1})
    nodes.push_back(
        {"node" + std::to_string(nodes.size() + 1), 0, std::vector<int>(8, type), 400e9});
  view.machines = std::make_shared<const Cluster>(
      Cluster::make("mixed", {*find_gpu_type("a100"), *find_gpu_type("h100")}, nodes).value());
  view.nodes[0].gpu_type = view.nodes[1].gpu_type = "a100";
  ElasticJobView& job = add_job(view, 1, 0, 2);
  job.gpu_types = {"a100", "h100"};
  job.max_gpus = 6;
  take(view, 0, {6, 0, 0});
  take(view, 1, {6, 0, 0});
  take(view, 2, {6, 0, 0});
  perf::Coefficients k = light_coefficients();
  k.types.push_back(k.types[0]);
  k.types[0].comp_s *= 50;
  profile(job, small_model(), k);
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.grants.size(), 1);
  cr_assert_eq(decisions.grants[0].node, 2);
  cr_assert_eq(decisions.grants[0].lent.gpus, 2);
  cr_assert_eq(decisions.plans[0].layout.gpu_count(), 2);
}

Test(swell, a_young_job_gets_what_an_old_one_hardly_needs) {
  const ClusterView view = one_has_all(0, 9990);
  const Decisions decisions = decide(view);
  cr_assert_geq(decisions.reclaims.size(), 1u);
  for (const Reclaim& reclaim : decisions.reclaims) cr_assert_eq(reclaim.job, 1u);
  cr_assert_eq(decisions.reclaims[0].needed_by, 0u);
}

// Its owner paused it or said stay=, or its program takes no more: that shields nothing.
Test(swell, a_job_that_wants_no_more_loses_what_others_gain_more_by) {
  ClusterView view = one_has_all(0, 9990);
  cr_assert_gt(decide(view).reclaims.size(), 0u);
  view.jobs[0].may_grow = false;
  cr_assert_gt(decide(view).reclaims.size(), 0u);
  view.jobs[0].changing = true;
  cr_assert(decide(view).reclaims.empty());
}

Test(swell, an_old_job_takes_nothing_from_a_much_younger_one) {
  cr_assert(decide(one_has_all(9990, 0)).reclaims.empty());
}

Test(swell, nothing_is_taken_from_others_by_data_sheets_alone) {
  ClusterView view = one_has_all(0, 9990);
  cr_assert_not(decide(view).reclaims.empty(), "by profiles it is");
  for (ElasticJobView& job : view.jobs) {
    auto training = std::make_shared<Training>(*job.training);
    if (job.companions.empty()) training->source = planner::ScaleSource::data_sheets;
    job.training = std::move(training);
  }
  cr_assert(decide(view).reclaims.empty());
}

Test(swell, jobs_that_have_shared_alike_leave_it_at_that) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  view.jobs.reserve(2);
  ElasticJobView& first = add_job(view, 1, 0, 1);
  ElasticJobView& second = add_job(view, 2, 0, 1);
  lend(view, first, 11, 0, 3);
  lend(view, second, 12, 0, 3);
  profile(first, small_model(), light_coefficients());
  profile(second, small_model(), light_coefficients());
  cr_assert(decide(view).reclaims.empty());
}

Test(swell, a_job_about_to_end_is_not_stopped_for_more_gpus) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  profile(add_job(view, 1, 0, 2), small_model(), light_coefficients());
  view.jobs[0].remaining_samples = 10;
  cr_assert_eq(granted(decide(view), 1), 0);
  view.jobs[0].remaining_samples = 1e9;
  cr_assert_gt(granted(decide(view), 1), 0);
}

Test(swell, never_lends_gpus_that_a_pending_job_could_start_on) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  profile(add_job(view, 1, 0, 4), small_model(), light_coefficients());
  view.queue.push_back(pending(9, 1, 8));
  for (const Grant& grant : decide(view).grants) cr_assert_neq(grant.node, 1);
}

Test(swell, a_waiting_job_is_served_first_of_all) {
  ClusterView view = one_has_all(0, 0);
  view.queue.push_back(pending(9, 1, 2));
  const Decisions decisions = decide(view);
  const bool served = std::any_of(decisions.reclaims.begin(), decisions.reclaims.end(),
                                  [](const Reclaim& reclaim) { return reclaim.needed_by == 9; });
  cr_assert(served);
}

Test(swell, a_starting_job_is_lent_gpus_before_its_profile) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  ElasticJobView& job = add_starting(view, 1, 0, 2);
  const Decisions decisions = decide(view);
  cr_assert_gt(granted(decisions, 1), 0);
  cr_assert_eq(decisions.plans.size(), 1u);
  job.starting = false;
  cr_assert_eq(granted(decide(view), 1), 0, "it has trained, and its profile will come");
}

Test(swell, other_policies_lend_a_starting_job_nothing) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  add_starting(view, 1, 0, 2);
  cr_assert_eq(granted(MarginalBenefit().decide(view), 1), 0);
  cr_assert_eq(granted(FewestFirst().decide(view), 1), 0);
}

Test(swell, a_starting_job_gets_nothing_that_a_pending_job_could_start_on) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  add_starting(view, 1, 0, 4);
  cr_assert_gt(granted(decide(view), 1), 4, "both nodes while nobody waits");
  view.queue.push_back(pending(9, 1, 8));
  for (const Grant& grant : decide(view).grants) cr_assert_eq(grant.node, 0);
}

Test(swell, a_young_job_is_not_stopped_for_longer_than_it_is_likely_to_run) {
  cr_assert_eq(granted(decide(slow_to_move(60)), 1), 0);
  cr_assert_eq(granted(decide(slow_to_move(10000)), 1), 8);
}

// Two samples a GPU: with less than twice the GPUs somebody still has two.
Test(swell, a_job_that_only_twice_its_gpus_help_is_lent_as_many) {
  ClusterView view = idle_cluster(40);
  know_machines(view);
  ElasticJobView& job = add_job(view, 1, 0, 8);
  std::vector<std::pair<NodeIndex, plan::GpuMask>> gpus = {{0, 0xFF}};
  for (NodeIndex node = 1; node < 16; ++node) {
    job.basic_nodes.push_back(node);
    job.basic_gpu_masks.push_back(take(view, node, job.per_worker * 8));
    gpus.emplace_back(node, 0xFF);
  }
  job.basic_gpus = 128;
  job.max_gpus = 512;
  models::Model model = small_model(1, 256);
  model.heads = model.kv_heads = 1;
  const auto training = profile(job, model, light_coefficients(), 1);
  training->basic = training->current = data_parallel(model, 1, gpus);
  cr_assert_eq(granted(decide(view), 1), 128);
}

Test(swell, a_starting_job_has_nothing_to_move) {
  ClusterView view = slow_to_move(5);
  view.jobs[0].starting = true;
  cr_assert_eq(granted(decide(view), 1), 8);
}

Test(swell, a_job_that_its_profile_shows_to_be_slower_gives_back_what_it_is_lent) {
  ClusterView view = idle_cluster(2);
  know_machines(view, 1e9);
  ElasticJobView& job = add_job(view, 1, 0, 4);
  lend(view, job, 11, 1, 4);
  swell::perf::Coefficients k = light_coefficients();
  k.param_bytes = 5e9;  // gradients cross a slow network
  profile(job, small_model(), k);
  const Decisions decisions = Swell().decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].companion, 11u);
  cr_assert(decisions.reclaims[0].why == Reclaim::Why::slows);
  cr_assert_eq(granted(decisions, 1), 0);
  job.may_grow = false;
  cr_assert_eq(Swell().decide(view).reclaims.size(), 1u, "that it wants no more changes nothing");
  job.changing = true;
  cr_assert(Swell().decide(view).reclaims.empty());
  job.changing = false;
  job.training = nullptr;
  profile(job, small_model(), light_coefficients());
  cr_assert(Swell().decide(view).reclaims.empty(), "it gains by them");
}

Test(swell, without_profiles_it_is_fewest_first) {
  std::mt19937 random(1);
  const auto below = [&](unsigned max) { return static_cast<int>(random() % max); };
  std::size_t granted = 0, reclaimed = 0;
  for (int trial = 0; trial < 500; ++trial) {
    ClusterView view = idle_cluster(4);
    if (trial % 2 == 0) know_machines(view);
    view.jobs.reserve(6);
    JobId companion = 100;
    for (JobId id = 1; id <= 6; ++id) {
      const NodeIndex node = below(4);
      if (view.nodes[static_cast<std::size_t>(node)].free.gpus == 0) continue;
      ElasticJobView& job = add_job(view, id, node, 1);
      job.max_gpus = 32;
      job.may_grow = below(4) > 0;
      for (NodeIndex from = 0; from < 4; ++from) {
        const int idle = view.nodes[static_cast<std::size_t>(from)].free.gpus;
        if (idle > 0 && below(2) == 0)
          lend(view, job, companion++, from, 1 + below(static_cast<unsigned>(idle)));
      }
    }
    for (JobId id = 10; id < 12; ++id)
      if (below(2) == 0) view.queue.push_back(pending(id, 1 + below(2), 1 + below(8)));
    const Decisions ours = decide(view), theirs = FewestFirst().decide(view);
    cr_assert(ours.grants == theirs.grants, "trial %d", trial);
    cr_assert(ours.reclaims == theirs.reclaims, "trial %d", trial);
    granted += ours.grants.size();
    reclaimed += ours.reclaims.size();
  }
  cr_assert(granted > 100 && reclaimed > 100, "%zu, %zu", granted, reclaimed);
}

namespace {

/// Job 1, lent what helps it on two idle nodes, beside jobs of one GPU each that may not grow and
/// explain 55 % of their steps.
ClusterView beside_liars(int liars) {
  ClusterView view = idle_cluster(3 + (liars + 7) / 8);
  know_machines(view);
  view.now_s = 10000;
  view.jobs.reserve(static_cast<std::size_t>(liars) + 1);
  ElasticJobView& honest = add_job(view, 1, 0, 8);
  honest.max_gpus = 24;
  const auto measure = [&](ElasticJobView& job, double factor) {
    const auto training = profile(job, small_model(), light_coefficients(), 1);
    const perf::PerformanceModel model(*training->model, *view.machines, *training->coefficients,
                                       perf::Sends::counted);
    const double speed = factor * model.throughput(training->basic);
    training->coefficients = corrected(training->coefficients, *training->model, *view.machines,
                                       {{training->basic, speed}});
  };
  measure(honest, 1);
  for (int i = 0; i < liars; ++i) {
    ElasticJobView& liar = add_job(view, static_cast<JobId>(i + 2), 3 + i / 8, 1);
    liar.max_gpus = 1;
    measure(liar, 0.55);
  }
  for (std::size_t i = 3; i < view.nodes.size(); ++i)  // what liars leave of their nodes
    take(view, static_cast<NodeIndex>(i), view.nodes[i].free);
  return view;
}

}  // namespace

Test(swell, an_honest_job_grows_alike_beside_any_number_of_jobs_with_bad_profiles) {
  const int alone = granted(decide(beside_liars(0)), 1);
  cr_assert_gt(alone, 0);
  for (const int liars : {1, 5, 50})
    cr_assert_eq(granted(decide(beside_liars(liars)), 1), alone, "%d liars", liars);
}

Test(swell, gpus_lent_on_the_jobs_own_node_are_planned_as_another_allocation) {
  for (const bool apart : {false, true}) {
    ClusterView view = idle_cluster(1);
    know_machines(view, 8e9);
    view.machines = std::make_shared<const cluster::Cluster>(
        cluster::Cluster::make("apart", view.machines->types(), view.machines->nodes(),
                               {.devices_apart = apart})
            .value());
    ElasticJobView& job = add_job(view, 1, 0, 2);
    profile(job, small_model(), light_coefficients());
    const Decisions decisions = decide(view);
    cr_assert_eq(decisions.plans.size(), 1u);
    int parts = 0;
    for (const plan::StageLayout& stage : decisions.plans[0].layout.stages)
      for (const plan::GroupLayout& group : stage.groups) {
        const bool basic = (group.gpus & 0b11) != 0, lent = (group.gpus & ~0b11U) != 0;
        cr_assert_not(apart && basic && lent, "a TP group over both");
        cr_assert_eq(group.part, apart && lent ? 1 : 0);
        parts |= 1 << group.part;
      }
    cr_assert_eq(parts, apart ? 0b11 : 0b1);
  }
}

Test(swell, a_change_of_plan_is_priced_by_what_changes_were_measured_to_cost) {
  const auto lends = [](std::optional<redeploy::Cost> measured, redeploy::Method method) {
    ClusterView view = idle_cluster(1);
    know_machines(view);
    view.now_s = 10000;
    ElasticJobView& job = add_job(view, 1, 0, 2);
    job.started_s = view.now_s - 200;
    job.measured_cost = measured;
    job.method = method;
    profile(job, small_model(), light_coefficients());
    return !decide(view).grants.empty();
  };
  using redeploy::Method;
  cr_assert(lends(std::nullopt, Method::local_reuse));
  cr_assert_not(lends(redeploy::Cost{0, 500}, Method::checkpoint),
                "it stood still for long before");
  cr_assert(lends(redeploy::Cost{0, 500}, Method::local_reuse),
            "no more than ten times the model is believed");
  cr_assert_not(lends(redeploy::Cost{500, 0}, Method::local_reuse), "its programs start slowly");
  cr_assert(lends(redeploy::Cost{0, 1}, Method::checkpoint));
}
