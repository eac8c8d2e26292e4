// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/deadlines.h"

#include <criterion/criterion.h>

#include "core/policy/lending/owed.h"
#include "core/policy/lending/swell_views.h"

using namespace swell_views;

namespace {

/// Samples a second of the job as it runs, by a decision that sees half an hour of it left.
double speed_of(ClusterView view, std::size_t job) {
  view.jobs[job].deadline_s = view.now_s + 1e6;
  view.jobs[job].remaining_samples = 1e6;
  for (const DeadlineState& state : decide(view).deadlines)
    if (state.job == view.jobs[job].id) return 1e6 / (1e6 - *state.slack_s);
  cr_assert(false, "the job has a deadline");
  return 0;
}

/// Gives the job a deadline that it keeps with `times` its present speed, in an hour.
void needs(ClusterView& view, std::size_t job, double times) {
  const double speed = speed_of(view, job);
  view.jobs[job].deadline_s = view.now_s + 3600;
  view.jobs[job].remaining_samples = times * speed * 3600;
}

}  // namespace

// The second job is 10,000 s younger, which counts many times as much otherwise.
Test(deadlines, gpus_for_a_deadline_come_before_a_higher_gain) {
  ClusterView view = two_alike(0, 9990);
  cr_assert_eq(granted(decide(view), 1), 0);
  needs(view, 0, 1.5);
  const Decisions decisions = decide(view);
  cr_assert_gt(granted(decisions, 1), 0);
  cr_assert_eq(decisions.deadlines.size(), 1u);
  cr_assert_lt(*decisions.deadlines[0].slack_s, 0, "at its present speed it is late");
  cr_assert_gt(decisions.deadlines[0].needed_gpus, view.jobs[0].basic_gpus);
}

// Slack is what each decision finds: steps left at the measured speed against the time left.
Test(deadlines, slack_falls_where_a_job_makes_fewer_steps_than_its_speed_promised) {
  ClusterView view = two_alike(0, 9990);
  needs(view, 0, 0.5);
  const double speed = speed_of(view, 0), before = *decide(view).deadlines[0].slack_s;
  view.now_s += 600;
  view.jobs[0].remaining_samples -= 600 * speed;
  cr_assert_float_eq(*decide(view).deadlines[0].slack_s, before, 1);
  view.now_s += 600;
  view.jobs[0].remaining_samples -= 200 * speed;
  cr_assert_float_eq(*decide(view).deadlines[0].slack_s, before - 400, 1);
}

// Measured sources alone put a deadline before the gain of others.
Test(deadlines, a_deadline_by_data_sheets_alone_takes_nothing_from_others) {
  using planner::ScaleSource;
  for (const ScaleSource source :
       {ScaleSource::running_job, ScaleSource::one_device, ScaleSource::data_sheets}) {
    ClusterView view = two_alike(0, 9990);
    needs(view, 0, 1.5);
    auto training = std::make_shared<Training>(*view.jobs[0].training);
    training->source = source;
    view.jobs[0].training = std::move(training);
    const Decisions decisions = decide(view);
    const bool is_measured = source != ScaleSource::data_sheets;
    cr_assert_eq(granted(decisions, 1) > 0, is_measured, "%s", planner::name_of(source));
    cr_assert_eq(decisions.deadlines[0].slack_s.has_value(), is_measured);
    if (!is_measured) cr_assert_gt(granted(decisions, 2), 0);
  }
}

Test(deadlines, a_job_that_keeps_it_anyway_is_one_of_many) {
  ClusterView view = two_alike(0, 9990);
  needs(view, 0, 0.5);
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 0);
  cr_assert_gt(*decisions.deadlines[0].slack_s, 0);
}

Test(deadlines, a_deadline_that_nothing_keeps_takes_nothing_from_others) {
  for (const double times : {50.0, -1.0}) {
    ClusterView view = two_alike(0, 9990);
    needs(view, 0, times);
    if (times < 0) view.jobs[0].deadline_s = view.now_s - 1;  // it has passed
    const Decisions decisions = decide(view);
    cr_assert_eq(granted(decisions, 1), 0, "%g", times);
    cr_assert_eq(decisions.deadlines[0].needed_gpus, 0);
  }
}

Test(deadlines, one_whose_steps_are_not_known_promises_nothing) {
  ClusterView view = two_alike(0, 9990);
  view.jobs[0].deadline_s = view.now_s + 60;
  const Decisions decisions = decide(view);
  cr_assert_eq(granted(decisions, 1), 0);
  cr_assert_not(decisions.deadlines.at(0).slack_s);
}

Test(deadlines, the_job_that_ends_first_comes_first_and_consent_before_it) {
  for (const bool consents : {false, true}) {
    ClusterView view = two_alike(5000, 5000);
    needs(view, 0, 1.6);
    needs(view, 1, 1.5);
    if (consents) view.jobs[0].wanted_gpus = view.jobs[0].basic_gpus + 2;
    const Decisions decisions = decide(view);
    cr_assert_eq(granted(decisions, 2), consents ? 0 : 2);
    cr_assert_eq(granted(decisions, 1), consents ? 2 : 0);
  }
}

Test(deadlines, it_is_taken_from_what_others_are_lent_and_not_back_again) {
  ClusterView view = one_has_all(9990, 0);
  cr_assert(decide(view).reclaims.empty(), "the other is old");
  needs(view, 1, 1.5);
  const Decisions decisions = decide(view);
  cr_assert_geq(decisions.reclaims.size(), 1u);
  for (const Reclaim& reclaim : decisions.reclaims) {
    cr_assert_eq(reclaim.job, 1u);
    cr_assert_eq(reclaim.why, Reclaim::Why::deadline);
  }
  // The first job keeps the GPUs that it needs for its own deadline.
  view.jobs[0].deadline_s = view.now_s + 3600;
  view.jobs[0].remaining_samples = 0.89 * speed_of(view, 0) * 3600;
  cr_assert(decide(view).reclaims.empty());
}

// Two jobs that scale badly would take the same GPUs from each other for ever.
Test(deadlines, gpus_that_nearly_meet_a_deadline_are_kept) {
  ClusterView view = one_has_all(9990, 0);
  view.jobs[0].max_gpus = 7;
  needs(view, 0, 1.1);
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.deadlines[0].needed_gpus, 0);
  needs(view, 1, 1.5);
  cr_assert(decide(view).reclaims.empty());
}

Test(deadlines, deadlines_beyond_reach_take_nothing_from_others) {
  ClusterView view = one_has_all(9990, 0);
  view.jobs[1].max_gpus = 64;
  needs(view, 1, 12);
  cr_assert_eq(decide(view).deadlines[0].needed_gpus, 0, "the node has eight");
}

// By its scale table two GPUs are all that help it: with six it would be as slow, claim no more and
// lose them, and claim them again.
Test(deadlines, more_gpus_that_bring_too_little_are_not_claimed) {
  ClusterView view = one_has_all(9990, 0);
  profile_poor(view.jobs[1]);
  needs(view, 1, 4);
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.deadlines[0].needed_gpus, 0);
  cr_assert(decisions.reclaims.empty(), "%zu", decisions.reclaims.size());
  needs(view, 1, 1.4);
  cr_assert_geq(decide(view).reclaims.size(), 1u, "two suffice nearly");
}

// GPUs kept for pending jobs, or owed to others, never come.
Test(deadlines, gpus_that_can_never_be_taken_are_not_within_reach) {
  ClusterView idle = two_alike(0, 9990);
  needs(idle, 0, 1.5);
  cr_assert_gt(decide(idle).deadlines[0].needed_gpus, 2);
  idle.queue.push_back(pending(9, 1, 2));
  cr_assert_eq(decide(idle).deadlines[0].needed_gpus, 0);

  ClusterView lent = one_has_all(9990, 0);
  needs(lent, 1, 1.5);
  cr_assert_gt(decide(lent).deadlines[0].needed_gpus, 1);
  lent.jobs[0].wanted_gpus = 7;
  cr_assert_eq(decide(lent).deadlines[0].needed_gpus, 0);

  // The second ends first, and needs the two that are idle.
  ClusterView both = two_alike(5000, 5000);
  needs(both, 0, 1.6);
  needs(both, 1, 1.5);
  const Decisions decisions = decide(both);
  cr_assert_eq(decisions.deadlines[0].needed_gpus, 0);
  cr_assert_gt(decisions.deadlines[1].needed_gpus, 2);
}

// The first started first, wanted two more and needs all; the next size that it may have is four
// more.
Test(deadlines, gpus_for_a_deadline_come_after_what_others_wanted) {
  ClusterView view = idle_cluster(3);
  know_machines(view);
  view.now_s = 10000;
  view.jobs.reserve(2);
  for (const JobId id : {1, 2}) {
    ElasticJobView& job = add_job(view, id, 0, 4);
    job.started_s = id * 1000.0;
    job.wanted_gpus = job.max_gpus = 8;
    profile(job, small_model(), light_coefficients());
  }
  take(view, 1, {4, 32, 32000});
  view.nodes[2].settling = true;
  view.jobs[0].wanted_gpus = 6;
  view.jobs[0].sizes = {4, 8};
  needs(view, 0, 1.5);
  const Decisions decisions = decide(view);
  cr_assert_eq(decisions.deadlines[0].needed_gpus, 8);
  cr_assert_eq(granted(decisions, 1), 0);
  cr_assert_eq(granted(decisions, 2), 4);
}

Test(deadlines, basic_demand_takes_them_all_the_same) {
  ClusterView view = one_has_all(9990, 0);
  view.jobs[0].deadline_s = view.now_s + 3600;
  view.jobs[0].remaining_samples = 0.89 * speed_of(view, 0) * 3600;
  view.queue.push_back(pending(9, 1, 2));
  const Decisions decisions = decide(view);
  cr_assert_geq(decisions.reclaims.size(), 1u);
  cr_assert_eq(decisions.reclaims[0].needed_by, 9u);
}

Test(deadlines, only_sizes_that_the_job_may_have_keep_it) {
  ClusterView view = two_alike(0, 9990);
  view.jobs[0].sizes = {view.jobs[0].basic_gpus, 2 * view.jobs[0].basic_gpus};
  needs(view, 0, 1.2);
  cr_assert_eq(decide(view).deadlines[0].needed_gpus, 2 * view.jobs[0].basic_gpus);
}
