// SPDX-License-Identifier: GPL-2.0-or-later
// swell: another plan for the GPUs that a job has.
#include <criterion/criterion.h>

#include "core/perf/performance_model.h"
#include "core/policy/lending/flextrain.h"
#include "core/policy/lending/swell.h"
#include "core/policy/measured_speeds.h"
#include "support/plans.h"
#include "support/views.h"

using namespace swell;
using namespace swell::policy;
using namespace support;

namespace {

/// A job with 4 GPUs of a node and the 4 others lent, none idle. Its 16 samples of a micro-batch,
/// 4 a GPU on its own alone, are divided among all, `last` of them for the last one.
ClusterView badly_divided(int last = 9) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  view.now_s = 10000;
  ElasticJobView& job = add_job(view, 1, 0, 4);
  job.may_replan = true;
  lend(view, job, 11, 0, 4);
  const auto training = profile(job, small_model(4, 64), light_coefficients());
  std::vector<plan::GroupLayout>& groups = training->current.stages[0].groups;
  for (int i = 0; i < 7; ++i)
    groups[static_cast<std::size_t>(i)].local_batch =
        (16 - last) / 7 + (i < (16 - last) % 7 ? 1 : 0);
  groups[7].local_batch = last;
  return view;
}

double throughput(const ClusterView& view, const plan::Layout& layout) {
  const Training& training = *view.jobs[0].training;
  return perf::PerformanceModel(*training.model, *view.machines, *training.coefficients,
                                perf::Sends::counted)
      .throughput(layout);
}

/// A job of four stages on its own four GPUs, which takes chunks. `lends`: it has four more, else
/// the others are another's.
ClusterView pipelined(bool lends = false) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  view.now_s = 10000;
  ElasticJobView& job = add_job(view, 1, 0, 4);
  if (lends) lend(view, job, 11, 0, 4);
  else view.nodes[0].free = {}, view.nodes[0].free_gpus = 0;
  job.may_replan = true;
  const auto training = profile(job, small_model(32, 64), light_coefficients());
  training->consistency = planner::Consistency::exact;
  training->takes_chunks = true;
  training->basic = {16, {}};
  for (int i = 0; i < 4; ++i) add_stage(training->basic, 8, 1, 1, 4, 0, i);
  training->current = training->basic;
  return view;
}

}  // namespace

Test(swell_replan, an_exact_job_on_its_own_gpus_gets_a_faster_schedule) {
  for (const bool by_flextrain : {false, true}) {
    const auto decide = [&](const ClusterView& view) {
      return by_flextrain ? FlexTrain().decide(view) : Swell().decide(view);
    };
    ClusterView view = pipelined();
    const Decisions decisions = decide(view);
    cr_assert_eq(decisions.plans.size(), 1u);
    const plan::Layout& plan = decisions.plans[0].layout;
    cr_assert(plan.pp() == 4 && plan.gpu_count() == 4 && plan.is_scheduled());
    cr_assert_gt(throughput(view, plan), 1.1 * throughput(view, view.jobs[0].training->current));
    cr_assert(decisions.grants.empty() && decisions.reclaims.empty());
    const auto with = [&](auto&& change) {
      ClusterView changed = pipelined();
      auto training = std::make_shared<Training>(*changed.jobs[0].training);
      change(changed.jobs[0], *training);
      changed.jobs[0].training = training;
      return decide(changed).plans.size();
    };
    cr_assert_eq(with([&](auto&, Training& its) { its.current = plan; }), 0u, "it runs it already");
    cr_assert_eq(with([](auto& job, Training&) { job.may_replan = false; }), 0u);
    cr_assert_eq(with([](auto&, Training& its) { its.takes_chunks = false; }), 0u);
    cr_assert_eq(with([](auto& job, Training&) { job.remaining_samples = 64; }), 0u, "it ends");
    cr_assert_eq(
        with([](auto&, Training& its) { its.consistency = planner::Consistency::relaxed; }), 0u);
  }
}

Test(swell_replan, a_job_that_is_lent_what_it_is_owed_is_told_no_plan_that_leaves_it_out) {
  ClusterView view = pipelined(true);
  ElasticJobView& job = view.jobs[0];
  job.companions.clear();
  view.nodes[0].free = {4, 64, 1'000'000};
  view.nodes[0].free_gpus = 0xf0;
  job.wanted_gpus = 8;
  const Decisions decisions = FlexTrain().decide(view);
  cr_assert_eq(granted(decisions, 1), 4);
  for (const NewPlan& plan : decisions.plans) cr_assert_eq(plan.layout.gpu_count(), 8);
}

Test(swell_replan, a_job_that_gives_all_back_gets_the_faster_schedule_at_once) {
  ClusterView view = pipelined(true);
  ElasticJobView& job = view.jobs[0];
  auto training = std::make_shared<Training>(*job.training);
  for (int i = 0; i < 4; ++i) add_stage(training->current, 4, 1, 1, 4, 0, 4 + i);
  for (auto& stage : training->current.stages) stage.layers = 4;
  job.training = training;
  view.queue.push_back(pending(9, 1, 4));
  const Decisions decisions = Swell().decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.plans.size(), 1u);
  const plan::Layout& plan = decisions.plans[0].layout;
  cr_assert(plan.gpu_count() == 4 && plan.is_scheduled());
}

Test(swell_replan, gpus_lent_before_the_profile_get_a_better_plan) {
  const ClusterView view = badly_divided();
  const Decisions decisions = Swell().decide(view);
  cr_assert_eq(decisions.plans.size(), 1u);
  cr_assert_eq(decisions.plans[0].job, 1u);
  cr_assert_eq(decisions.plans[0].layout.gpu_count(), 8);
  cr_assert(decisions.grants.empty());
  cr_assert(decisions.reclaims.empty(), "slower than on its own GPUs, but not by the better plan");
  const Training& training = *view.jobs[0].training;
  cr_assert_gt(throughput(view, decisions.plans[0].layout), 1.5 * throughput(view, training.basic));
}

Test(swell_replan, without_a_better_plan_what_slows_goes_back) {
  ClusterView view = badly_divided();
  view.jobs[0].may_replan = false;
  const Decisions decisions = Swell().decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert(decisions.reclaims[0].why == Reclaim::Why::slows);
}

Test(swell_replan, a_plan_that_is_as_good_stays) {
  cr_assert(Swell().decide(badly_divided(2)).plans.empty());
}

Test(swell_replan, the_plan_on_its_own_gpus_is_the_jobs) {
  ClusterView view = badly_divided();
  auto training = std::make_shared<Training>(*view.jobs[0].training);
  view.jobs[0].companions.clear();
  training->basic.stages[0].groups[0].local_batch = 1;
  training->basic.stages[0].groups[3].local_batch = 7;
  training->current = training->basic;
  view.jobs[0].training = training;
  cr_assert(Swell().decide(view).plans.empty());
}

Test(swell_replan, a_job_that_is_about_to_end_is_not_stopped_for_it) {
  ClusterView view = badly_divided(3);
  cr_assert_eq(Swell().decide(view).plans.size(), 1u);
  view.jobs[0].remaining_samples = 64;
  cr_assert(Swell().decide(view).plans.empty());
}

Test(swell_replan, a_job_that_gives_gpus_back_gets_the_plan_for_the_rest_alone) {
  ClusterView view = badly_divided();
  view.jobs[0].companions[0].leaving = true;
  cr_assert(Swell().decide(view).plans.empty());
  view = badly_divided();
  view.queue.push_back(pending(9, 1, 4));
  const Decisions decisions = Swell().decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.plans.size(), 1u);
  cr_assert_eq(decisions.plans[0].layout.gpu_count(), 4);
}

Test(swell_replan, a_plan_that_was_slower_than_predicted_is_not_chosen_again) {
  ClusterView view = badly_divided();
  const plan::Layout first = Swell().decide(view).plans.at(0).layout;
  const auto chosen_again = [&](double factor) {
    ClusterView later = badly_divided();
    auto training = std::make_shared<Training>(*later.jobs[0].training);
    training->coefficients = corrected(training->coefficients, *training->model, *later.machines,
                                       {{training->current, throughput(later, training->current)},
                                        {first, factor * throughput(later, first)}});
    later.jobs[0].training = training;
    const Decisions decisions = Swell().decide(later);
    return !decisions.plans.empty() &&
           perf::shape_of(decisions.plans[0].layout) == perf::shape_of(first);
  };
  cr_assert(chosen_again(1));
  cr_assert(chosen_again(1.1));
  cr_assert_not(chosen_again(0.4));
}
