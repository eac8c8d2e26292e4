// SPDX-License-Identifier: GPL-2.0-or-later
// What others are lent, and a job that consented to fewer GPUs than it wanted is owed.
#include "core/policy/lending/owed.h"

#include <criterion/criterion.h>

#include "core/policy/lending/fewest_first.h"
#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/lending/swell.h"
#include "support/views.h"

using namespace swell;
using namespace swell::policy;
using namespace support;

namespace {

/// Job 1 is lent the six other GPUs of the first node, two a companion; job 2 has one of the
/// second, which is full.
ClusterView all_lent(int wanted) {
  ClusterView view = idle_cluster(2);
  view.now_s = 1000;
  view.jobs.reserve(3);
  ElasticJobView& lender = add_job(view, 1, 0, 2);
  for (JobId id = 11; id <= 13; ++id) lend(view, lender, id, 0, 2);
  ElasticJobView& owed = add_job(view, 2, 1, 1);
  owed.max_gpus = 8;
  owed.wanted_gpus = wanted;
  owed.started_s = 900;
  take(view, 1, {7, 56, 56000});
  return view;
}

Decisions decide(const ClusterView& view) { return FewestFirst().decide(view); }

std::vector<JobId> reclaimed(const Decisions& decisions) {
  std::vector<JobId> ids;
  for (const Reclaim& reclaim : decisions.reclaims) ids.push_back(reclaim.companion);
  return ids;
}
using Jobs = std::vector<JobId>;

}  // namespace

Test(owed, wanted_gpus_are_reclaimed_from_jobs_lent_more_than_they_wanted) {
  cr_assert(decide(all_lent(0)).reclaims.empty());
  cr_assert(decide(all_lent(1)).reclaims.empty(), "it has what it wanted");
  for (const int wanted : {2, 3}) {
    const Decisions decisions = decide(all_lent(wanted));
    cr_assert_eq(decisions.reclaims.size(), 1u);
    cr_assert_eq(decisions.reclaims[0].needed_by, 0u);
    cr_assert_eq(decisions.reclaims[0].why, Reclaim::Why::owed);
    cr_assert_eq(granted(decisions, 2), 0, "not idle yet");
  }
  cr_assert_eq(decide(all_lent(4)).reclaims.size(), 2u);
}

Test(owed, every_lending_policy_reclaims_it_for_a_job_without_a_profile) {
  const ClusterView view = all_lent(3);
  cr_assert_eq(Swell().decide(view).reclaims.size(), 1u);
  cr_assert_eq(MarginalBenefit().decide(view).reclaims.size(), 1u);
}

Test(owed, nothing_more_leaves_for_what_is_idle_or_leaves_already) {
  ClusterView view = all_lent(3);
  view.jobs[0].companions[1].leaving = true;
  cr_assert(decide(view).reclaims.empty());
  view.jobs[1].wanted_gpus = 5;
  cr_assert(decide(view).reclaims.empty(), "one change of a job at a time");
  view.jobs[1].wanted_gpus = 3;
  view.jobs[0].companions[1].leaving = false;
  view.nodes[1].free = {2, 16, 16000};
  view.nodes[1].free_gpus = 0xC0;
  const Decisions decisions = decide(view);
  cr_assert(decisions.reclaims.empty());
  cr_assert_eq(granted(decisions, 2), 2);
}

Test(owed, gpus_that_leave_for_a_pending_job_are_not_counted) {
  ClusterView view = all_lent(3);
  view.queue.push_back(pending(9, 1, 2));
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.reclaims.size(), 2u);
  cr_assert_eq(decisions.reclaims[0].needed_by, 9u);
  cr_assert_eq(decisions.reclaims[1].needed_by, 0u);
}

Test(owed, wanted_gpus_of_another_job_stay_with_it) {
  ClusterView view = all_lent(7);
  view.jobs[0].wanted_gpus = 5;
  cr_assert_eq(reclaimed(decide(view)), (Jobs{13}), "two of its companions are its own demand");
}

Test(owed, serves_jobs_in_order_of_start) {
  ClusterView view = all_lent(3);
  ElasticJobView& third = view.jobs.emplace_back(view.jobs[1]);
  third.id = 3;
  third.wanted_gpus = 5;
  third.started_s = 800;
  cr_assert_eq(decide(view).reclaims.size(), 3u);
  // Four of the six are its; one that is left with less than its step is given none.
  third.wanted_gpus = 7;
  cr_assert_eq(decide(view).reclaims.size(), 3u);
}

Test(owed, gpus_that_the_job_cannot_use_stay_where_they_are) {
  for (int what = 0; what < 5; ++what) {
    ClusterView view = all_lent(3);
    ElasticJobView& owed = view.jobs[1];
    if (what == 0) owed.excluded_nodes = {0};
    if (what == 1) owed.gpu_types = {"a100"};
    if (what == 2) {
      owed.partition = 1;
      view.partitions.push_back({1});
    }
    if (what == 3) owed.may_grow = false;
    if (what == 4) owed.per_worker.memory_mib = 500000;
    cr_assert(decide(view).reclaims.empty(), "%d", what);
  }
}

Test(owed, a_size_that_cannot_be_reached_takes_nothing_from_others) {
  ClusterView view = all_lent(8);
  view.jobs[1].sizes = {1, 8};
  cr_assert(decide(view).reclaims.empty(), "six are lent, and seven are missing");
  view.jobs[1].sizes = {1, 7, 8};
  cr_assert_eq(decide(view).reclaims.size(), 3u);
  view.jobs[1].wanted_gpus = 6;
  cr_assert(decide(view).reclaims.empty(), "seven are more than it wanted");
}

Test(owed, a_job_that_is_being_changed_loses_nothing_more) {
  ClusterView view = all_lent(5);
  view.jobs[0].changing = true;
  cr_assert(decide(view).reclaims.empty());
}

Test(owed, a_job_that_wants_no_more_keeps_nothing_from_who_is_owed) {
  ClusterView view = all_lent(5);
  const std::size_t due = decide(view).reclaims.size();
  cr_assert_gt(due, 0u);
  view.jobs[0].may_grow = false;
  cr_assert_eq(decide(view).reclaims.size(), due);
}

Test(owed, a_pending_job_is_given_other_lent_gpus_first) {
  ClusterView view = idle_cluster(1);
  view.jobs.reserve(2);
  for (JobId id : {1, 2}) {
    ElasticJobView& job = add_job(view, id, 0, id == 1 ? 1 : 2);
    lend(view, job, 10 + id, 0, 2);
  }
  take(view, 0, {1, 8, 8000});
  view.queue.push_back(pending(9, 1, 2));
  cr_assert_eq(reclaimed(decide(view)), (Jobs{12}), "it has more");
  view.jobs[1].wanted_gpus = 4;
  cr_assert_eq(reclaimed(decide(view)), (Jobs{11}));
}

// B of the poor job is below every threshold.
Test(owed, marginal_benefit_lends_and_keeps_what_is_owed_whatever_its_benefit) {
  ClusterView view = idle_cluster(2);
  know_machines(view);
  view.jobs.reserve(2);
  profile_poor(add_job(view, 1, 0, 4));
  take(view, 1, {8, 64, 64000});
  MarginalBenefit::Options options;
  options.aggressiveness = 0.1;
  const MarginalBenefit policy(options);
  cr_assert_eq(granted(policy.decide(view), 1), 0);
  view.jobs[0].wanted_gpus = 8;
  cr_assert_eq(granted(policy.decide(view), 1), 4);
  lend(view, view.jobs[0], 11, 0, 4);
  profile_poor(view.jobs[0]);
  for (const double recorded : {-1.0, 0.01}) {
    view.jobs[0].companions[0].benefit = recorded;
    view.jobs[0].wanted_gpus = 8;
    cr_assert(policy.decide(view).reclaims.empty());
    view.jobs[0].wanted_gpus = 0;
    cr_assert_eq(policy.decide(view).reclaims.size(), 1u);
  }
}
