// SPDX-License-Identifier: GPL-2.0-or-later
// What Swell owes to jobs that consented to fewer GPUs than they wanted.
#include <criterion/criterion.h>

#include "core/policy/lending/expansions.h"
#include "core/policy/lending/swell_views.h"

using namespace swell_views;

// A starting job that is 10,000 s younger counts many times as much otherwise.
Test(swell, wanted_gpus_of_a_consenting_job_come_before_a_higher_gain) {
  const auto view_of = [](int wanted) {
    ClusterView view = two_alike(0, 9990);
    view.jobs[0].wanted_gpus = wanted;
    return view;
  };
  cr_assert_eq(granted(decide(view_of(0)), 1), 0);
  cr_assert_eq(granted(decide(view_of(2)), 1), 0, "it has what it wanted");
  cr_assert_eq(granted(decide(view_of(4)), 1), 2);
  cr_assert_eq(granted(decide(view_of(4)), 2), 0);
}

Test(swell, the_first_started_job_gets_its_wanted_gpus_first) {
  ClusterView view = two_alike(5000, 0);
  for (ElasticJobView& job : view.jobs) job.wanted_gpus = 4;
  cr_assert_eq(granted(decide(view), 2), 2);
  cr_assert_eq(granted(decide(view), 1), 0);
}

Test(swell, beyond_what_it_wanted_a_job_is_one_of_many) {
  ClusterView view = two_alike(0, 9990, 1);
  for (ElasticJobView& job : view.jobs) job.max_gpus = 8;
  view.jobs[0].wanted_gpus = 2;
  cr_assert_eq(granted(decide(view), 1), 1);
  cr_assert_eq(granted(decide(view), 2), 3);
}

// Only twice its GPUs help the first.
Test(swell, a_step_beyond_what_a_job_wanted_comes_before_nothing) {
  const auto view_of = [](int wanted) {
    ClusterView view = idle_cluster(2);
    know_machines(view);
    view.now_s = 10000;
    view.jobs.reserve(2);
    profile_poor(add_job(view, 1, 0, 4));
    ElasticJobView& young = add_job(view, 2, 1, 8);
    young.started_s = 9990;
    profile(young, small_model(), light_coefficients());
    view.jobs[0].wanted_gpus = wanted;
    return view;
  };
  cr_assert_eq(granted(decide(view_of(8)), 1), 4);
  cr_assert_eq(granted(decide(view_of(6)), 1), 0);
  cr_assert_gt(granted(decide(view_of(6)), 2), 0);
}

Test(swell, wanted_gpus_are_taken_from_others_expansions_and_no_more) {
  ClusterView view = one_has_all(9990, 0);
  cr_assert(decide(view).reclaims.empty(), "the other is old");
  view.jobs[1].wanted_gpus = 3;
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.reclaims.size(), 1u, "two GPUs are one companion: %zu",
               decisions.reclaims.size());
  cr_assert_eq(decisions.reclaims[0].job, 1u);
  cr_assert_eq(decisions.reclaims[0].why, Reclaim::Why::owed);
  // While these leave, another job's need not.
  ElasticJobView& lender = view.jobs[0];
  for (CompanionView& companion : lender.companions)
    companion.leaving = companion.id == decisions.reclaims[0].companion;
  view.jobs.reserve(3);
  view.nodes.push_back(idle_cluster(1).nodes[0]);
  view.partitions[0].push_back(1);
  know_machines(view);
  ElasticJobView& third = add_job(view, 3, 1, 2);
  third.started_s = 9990;
  third.max_gpus = 8;
  lend(view, third, 31, 1, 6);
  profile(third, small_model(), light_coefficients());
  cr_assert(decide(view).reclaims.empty());
  view.jobs[1].wanted_gpus = 5;
  cr_assert_eq(decide(view).reclaims.size(), 1u, "two more are wanted");
}

Test(swell, others_lose_only_what_idle_gpus_leave_of_what_a_job_wanted) {
  for (const bool idle_first : {true, false}) {  // which of the GPUs have the lower indexes
    ClusterView view = idle_cluster(1);
    know_machines(view);
    view.jobs.reserve(2);
    ElasticJobView& first = add_job(view, 1, 0, 1);
    ElasticJobView& second = add_job(view, 2, 0, 1);
    const Resources two = second.per_worker * 2;
    const plan::GpuMask aside = idle_first ? take(view, 0, two) : 0;
    for (JobId id = 11; id <= 12; ++id) lend(view, first, id, 0, 2);
    view.nodes[0].free_gpus |= aside;
    if (idle_first) view.nodes[0].free += two;
    second.max_gpus = 8;
    profile(first, small_model(), light_coefficients());
    profile(second, small_model(), light_coefficients());
    second.wanted_gpus = 3;
    Decisions decisions = decide(view);  // two are idle
    cr_assert(decisions.reclaims.empty());
    cr_assert_eq(granted(decisions, 2), 2);
    second.wanted_gpus = 5;
    decisions = decide(view);
    cr_assert_eq(decisions.reclaims.size(), 1u, "%zu", decisions.reclaims.size());
    cr_assert_eq(granted(decisions, 2), 2);
  }
}

Test(swell, wanted_gpus_move_only_to_pending_jobs) {
  ClusterView view = one_has_all(0, 9900);
  view.jobs[0].wanted_gpus = 7;
  cr_assert(decide(view).reclaims.empty(), "though a young job gains more");
  view.jobs[0].wanted_gpus = 5;
  const Decisions beyond = decide(view);
  cr_assert_eq(beyond.reclaims.size(), 1u);
  cr_assert_eq(beyond.reclaims[0].companion, 13u, "the last lent is beyond what it wanted");
  view.jobs[0].wanted_gpus = 7;
  view.queue.push_back(pending(9, 1, 6));
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.reclaims.size(), 3u);
  for (const Reclaim& reclaim : decisions.reclaims) cr_assert_eq(reclaim.needed_by, 9u);
}

Test(swell, wanted_gpus_do_not_move_to_another_job_that_wants_them) {
  ClusterView view = one_has_all(0, 9900);
  view.jobs[0].wanted_gpus = view.jobs[1].wanted_gpus = 7;
  cr_assert(decide(view).reclaims.empty(), "the first has started first");
  view.jobs[0].wanted_gpus = 0;
  cr_assert_eq(decide(view).reclaims.size(), 3u);
}

Test(swell, a_waiting_job_is_given_other_lent_gpus_before_those_that_a_job_wanted) {
  ClusterView view = idle_cluster(1);
  know_machines(view);
  view.now_s = 10000;
  view.jobs.reserve(2);
  for (JobId id : {1, 2}) {
    ElasticJobView& job = add_job(view, id, 0, 2);
    job.started_s = id == 1 ? 0 : 9990;
    lend(view, job, 10 + id, 0, 2);
    profile(job, small_model(), light_coefficients());
  }
  view.queue.push_back(pending(9, 1, 2));
  cr_assert_eq(decide(view).reclaims.at(0).job, 1u, "the old job loses less");
  view.jobs[0].wanted_gpus = 4;
  cr_assert_eq(decide(view).reclaims.at(0).job, 2u);
}

// The first job has reported no profile; two GPUs are idle.
Test(swell, gpus_owed_to_a_job_without_a_profile_come_before_planned_growth) {
  ClusterView view = two_alike(0, 9990);
  view.jobs[0].training = nullptr;
  cr_assert_eq(granted(decide(view), 1), 0);
  cr_assert_eq(granted(decide(view), 2), 2);
  view.jobs[0].wanted_gpus = 3;
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 1, "no more than it wanted");
  cr_assert_eq(granted(decisions, 2), 1);
}

// Six GPUs are idle: both jobs get some of them, and only one knows which.
Test(swell, no_gpu_is_promised_to_a_job_with_and_to_one_without_a_profile) {
  ClusterView view = two_alike(0, 0, 1);
  view.jobs[0].training = nullptr;
  view.jobs[0].wanted_gpus = 3;
  const plan::GpuMask idle = view.nodes[0].free_gpus;
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 2);
  cr_assert_eq(granted(decisions, 2), 2, "twice what it has is the most that pays: %d",
               granted(decisions, 2));
  // Slurm takes the lowest for the job without a plan: the plan names others.
  const plan::GpuMask lowest = idle & (~idle + 1), rest = idle ^ lowest;
  const plan::GpuMask two = lowest | (rest & (~rest + 1));
  cr_assert_eq(decisions.plans.size(), 1u);
  cr_assert_not(uses(decisions.plans[0].layout, 0, two));
}

// Sixteen more would be idle for it.
Test(swell, a_job_without_a_profile_is_lent_once_in_a_decision) {
  ClusterView view = idle_cluster(3);
  know_machines(view);
  ElasticJobView& job = add_job(view, 1, 0, 2);
  job.wanted_gpus = 4;
  Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 2);
  cr_assert_eq(decisions.grants.size(), 1u);
  lend(view, job, 11, 0, 2);
  decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 4, "up to its most");
}

// Others are owed GPUs of nodes where nothing is lent.
Test(swell, jobs_that_nothing_can_be_taken_for_keep_no_others_waiting) {
  ClusterView view = one_has_all(0, 9990);
  const std::size_t reclaims = decide(view).reclaims.size();
  cr_assert_gt(reclaims, 0u, "the second is young");
  view.partitions.emplace_back();
  view.jobs.reserve(2 + 5);
  for (JobId id = 3; id <= 7; ++id) {
    const auto node = static_cast<NodeIndex>(view.nodes.size());
    view.nodes.push_back(idle_cluster(1).nodes[0]);
    view.nodes.back().name = "other" + std::to_string(id);
    view.partitions[1].push_back(node);
    ElasticJobView& job = add_job(view, id, node, 8);
    job.partition = 1;
    job.wanted_gpus = 16;
  }
  know_machines(view);
  for (std::size_t job = 2; job < view.jobs.size(); ++job)
    profile(view.jobs[job], small_model(), light_coefficients());
  cr_assert_eq(decide(view).reclaims.size(), reclaims);
}
