// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/job_training.h"

#include <algorithm>
#include <criterion/criterion.h>

#include "unit/controller/reports.h"

using namespace swell;
using namespace swell::controller;
using swell::test::live_machines;
using swell::test::Reported;

namespace {

const HeldGpus kTwo = {{0, 0b11}}, kFour = {{0, 0b1111}};
const Reported kOnTwo{.gpus = {0, 1}}, kOnFour{.gpus = {0, 1, 2, 3}}, kOnLent{.gpus = {2, 3}};

std::string refusal(const Reported& reported) {
  JobTraining training;
  const auto taken = training.take(reported.message(), kTwo, kFour, *live_machines());
  cr_assert_not(taken.ok());
  cr_assert_not(training.is_known());
  return taken.error().message();
}

bool has(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

/// Whether the speed of a plan of this shape was reported.
bool measured(const policy::Training& training, const plan::Layout& layout) {
  for (const perf::MeasuredPlans::Plan& plan : training.coefficients->measured.plans)
    if (plan.shape == perf::shape_of(layout)) return true;
  return false;
}

JobTraining taken(const Reported& reported, const HeldGpus& held = kTwo) {
  JobTraining training;
  const auto good = training.take(reported.message(), kTwo, held, *live_machines());
  cr_assert(good.ok(), "%s", good.ok() ? "" : good.error().message().c_str());
  return training;
}

}  // namespace

Test(job_training, a_report_becomes_what_a_policy_plans_with) {
  const JobTraining training = taken(kOnTwo);
  const auto seen = training.seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed);
  cr_assert_not_null(seen.get());
  cr_assert_eq(seen->model->layers, 8);
  cr_assert_eq(seen->model->global_batch, 64);
  cr_assert_eq(seen->basic.gpu_count(), 2);
  cr_assert(seen->current == seen->basic);
  cr_assert_float_eq(training.rate(), 64 / kOnTwo.step_s(), 1e-6);
  cr_assert_eq(training.seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed).get(),
               seen.get(), "nothing changed");
}

Test(job_training, a_plan_may_leave_out_the_jobs_own_gpus_but_none_that_is_lent) {
  JobTraining training = taken(kOnTwo);
  cr_assert(training.take(kOnLent.message(), kTwo, kFour, *live_machines()).ok());
  const auto on_lent = training.seen(kTwo, kFour, live_machines(), planner::Consistency::relaxed);
  cr_assert_eq(on_lent->current.gpu_count(), 2);
  cr_assert_eq(on_lent->current.stages[0].groups[0].gpus, 0b100);
  cr_assert(measured(*on_lent, on_lent->current));
  const HeldGpus six = {{0, 0b111111}};
  const auto more = training.seen(kTwo, six, live_machines(), planner::Consistency::relaxed);
  cr_assert_not(measured(*more, more->current), "it does not run on what was lent since");
}

Test(job_training, a_plan_over_some_of_its_own_gpus_is_no_measure_of_them_all) {
  const JobTraining training = taken({.gpus = {0}});
  const auto seen = training.seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed);
  cr_assert_eq(seen->basic.gpu_count(), 2);
  cr_assert_not(measured(*seen, seen->basic));
}

Test(job_training, a_plan_over_lent_gpus_is_guessed_until_they_report) {
  const JobTraining training = taken(kOnTwo);
  const auto seen = training.seen(kTwo, kFour, live_machines(), planner::Consistency::relaxed);
  cr_assert_not_null(seen.get());
  cr_assert_eq(seen->current.gpu_count(), 4);
  cr_assert_eq(seen->basic.gpu_count(), 2);
}

Test(job_training, impossible_values_are_refused_by_name) {
  // A pass of 8 layers of 100 million parameters within a microsecond.
  const std::string fast = refusal({.gpus = {0, 1}, .layer_s = 1e-8, .layer_bytes = 4e8});
  cr_assert(has(fast, "fwd_s") && has(fast, "h100"), "%s", fast.c_str());
  const std::string step = refusal({.gpus = {0, 1}, .step_factor = 0.1});
  cr_assert(has(step, "regions overlap"), "%s", step.c_str());
  const std::string idle = refusal({.gpus = {0, 1}, .step_factor = 10});
  cr_assert(has(idle, "explain 10 %"), "%s", idle.c_str());
  const std::string others = refusal({.gpus = {6, 7}});
  cr_assert(has(others, "does not hold"), "%s", others.c_str());
  const std::string twice = refusal({.gpus = {1, 1}});
  cr_assert(has(twice, "GPU"), "%s", twice.c_str());
  const std::string large = refusal({.gpus = {0, 1}, .layers = 5000});
  cr_assert(has(large, "at most 4096"), "%s", large.c_str());
}

Test(job_training, a_change_within_two_percent_keeps_the_coefficients) {
  JobTraining training = taken(kOnTwo);
  const auto before = training.seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed);
  const Reported same{.gpus = {0, 1}, .layer_s = 1.01e-3}, other{.gpus = {0, 1}, .layer_s = 2e-3};
  cr_assert(training.take(same.message(), kTwo, kTwo, *live_machines()).ok());
  auto now = training.seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed);
  cr_assert(*now->coefficients == *before->coefficients);
  cr_assert(training.take(other.message(), kTwo, kTwo, *live_machines()).ok());
  now = training.seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed);
  cr_assert_float_eq(now->coefficients->types[0].comp_s, 2 * before->coefficients->types[0].comp_s,
                     1e-4);
}

Test(job_training, compares_what_lent_gpus_bring_with_what_was_predicted) {
  JobTraining training = taken(kOnTwo);
  cr_assert_not(training.speedup().has_value());
  const Reported fair{.gpus = {0, 1, 2, 3}};
  cr_assert(training.take(fair.message(), kTwo, kFour, *live_machines()).ok());
  cr_assert_float_eq(training.speedup()->measured, 2, 0.05);
  cr_assert_float_eq(training.speedup()->predicted, 2, 0.1);
  const auto seen = training.seen(kTwo, kFour, live_machines(), planner::Consistency::relaxed);
  cr_assert(measured(*seen, seen->basic) && measured(*seen, seen->current));
  const Reported slow{.gpus = {0, 1, 2, 3}, .step_factor = 1.9};
  cr_assert(training.take(slow.message(), kTwo, kFour, *live_machines()).ok());
  cr_assert_lt(training.speedup()->measured, 1.1);
  cr_assert_gt(training.speedup()->predicted, 1.8);
}

Test(job_training, remembers_what_earlier_plans_brought) {
  JobTraining training = taken(kOnTwo);
  const Reported slow{.gpus = {0, 1, 2, 3}, .step_factor = 1.3};
  cr_assert(training.take(slow.message(), kTwo, kFour, *live_machines()).ok());
  cr_assert(training.take(kOnTwo.message(), kTwo, kTwo, *live_machines()).ok());
  auto restarted = JobTraining::from_json(training.to_json());
  cr_assert(restarted.ok());
  for (JobTraining* each : {&training, &*restarted}) {
    const auto seen = each->seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed);
    const auto& plans = seen->coefficients->measured.plans;
    cr_assert_eq(plans.size(), 2u);
    cr_assert_gt(std::max(plans[0].factor, plans[1].factor), 1.1, "the plan over four is slow");
    cr_assert(each->take(kOnTwo.message(), kTwo, kTwo, *live_machines()).ok());
    const auto again = each->seen(kTwo, kTwo, live_machines(), planner::Consistency::relaxed);
    cr_assert_eq(again->coefficients->measured.plans.size(), 2u, "one for each shape");
  }
  Json bad = training.to_json();
  Json entry = bad.at("ran").items()[0];
  entry.set("rate", -1);
  bad.set("ran", Json::array({entry}));
  cr_assert_not(JobTraining::from_json(bad).ok());
}

Test(job_training, a_program_that_does_not_follow_its_plan_is_planned_for_as_one_layer) {
  JobTraining training = taken(kOnTwo);
  plan::Plan pipeline = kOnTwo.plan();
  pipeline.stages.resize(2, pipeline.stages.front());
  for (plan::Stage& stage : pipeline.stages) stage.layers = 4;
  pipeline.stages[0].groups[1].gpus = {2};
  pipeline.stages[1].groups[0].gpus = {1};
  pipeline.stages[1].groups[1].gpus = {3};
  training.told().decide(pipeline, 0);
  const Reported own{.gpus = {0, 1, 2, 3}, .generation = 1};
  // The plan may have been lost with the connection to its agent, or with slurmctld.
  JobTraining lost = training;
  lost.told().begin_agent();
  cr_assert(lost.take(own.message(), kTwo, kFour, *live_machines()).ok());
  cr_assert_not(lost.told().makes_own_plans());
  JobTraining read_again = *JobTraining::from_json(training.to_json());
  cr_assert(read_again.take(own.message(), kTwo, kFour, *live_machines()).ok());
  cr_assert_not(read_again.told().makes_own_plans());
  cr_assert(training.take(own.message(), kTwo, kFour, *live_machines()).ok());
  cr_assert(training.told().makes_own_plans());
  const auto seen = training.seen(kTwo, kFour, live_machines(), planner::Consistency::relaxed);
  cr_assert_eq(seen->model->layers, 1);
}

Test(job_training, all_of_it_comes_back_from_the_state_file) {
  JobTraining training = taken(kOnTwo);
  cr_assert(training.take(kOnFour.message(), kTwo, kFour, *live_machines()).ok());
  training.told().decide(kOnFour.plan(), 3);
  auto again = JobTraining::from_json(*Json::parse(training.to_json().dump()));
  cr_assert(again.ok(), "%s", again.ok() ? "" : again.error().message().c_str());
  cr_assert_eq(again->to_json().dump(), training.to_json().dump());
  const auto a = training.seen(kTwo, kFour, live_machines(), planner::Consistency::relaxed),
             b = again->seen(kTwo, kFour, live_machines(), planner::Consistency::relaxed);
  cr_assert(*a->coefficients == *b->coefficients);
  cr_assert(a->current == b->current);
  cr_assert(JobTraining::from_json(*Json::parse("{}")).ok() == false);
}

Test(job_training, an_owners_plan_must_be_over_the_jobs_gpus) {
  const JobTraining training = taken(kOnTwo);
  cr_assert(training.check_plan(kOnTwo.plan(), kTwo, kTwo, *live_machines()).ok());
  cr_assert_not(training.check_plan(kOnTwo.plan(), kTwo, kFour, *live_machines()).ok(),
                "it has no use for what is lent");
  cr_assert_not(training.check_plan(kOnFour.plan(), kTwo, kTwo, *live_machines()).ok());
  cr_assert(training.check_plan(kOnLent.plan(), kTwo, kFour, *live_machines()).ok());
  cr_assert_not(JobTraining().check_plan({}, kTwo, kTwo, *live_machines()).ok());
}

Test(job_training, an_owners_plan_needs_no_profile) {
  const JobTraining training;
  cr_assert(training.check_plan(kOnTwo.plan(), kTwo, kTwo, *live_machines()).ok());
  cr_assert_not(training.check_plan(kOnTwo.plan(), kTwo, kFour, *live_machines()).ok());
  plan::Plan uneven = kOnTwo.plan();
  uneven.stages[0].groups[1].gpus = {7};
  cr_assert_not(training.check_plan(uneven, kTwo, kTwo, *live_machines()).ok());
}

Test(job_training, a_plan_with_more_passes_than_can_be_predicted_is_refused) {
  plan::Plan chunked = kOnTwo.plan();
  chunked.stages[0].chunks = {2, 1, 1, 1, 1, 1, 1, 1, 1};  // embedding, 8 layers, head
  cr_assert(JobTraining().check_plan(chunked, kTwo, kTwo, *live_machines()).ok());
  chunked.micro_batches = 1 << 16;
  const auto refused = JobTraining().check_plan(chunked, kTwo, kTwo, *live_machines());
  cr_assert_not(refused.ok());
  cr_assert(has(refused.error().message(), "589824 passes"), "%s",
            refused.error().message().c_str());
  control::Profile message = kOnTwo.message();
  message.profile.set("plan", chunked.to_json());
  JobTraining training;
  const auto taken = training.take(message, kTwo, kTwo, *live_machines());
  cr_assert_not(taken.ok());
  cr_assert(has(taken.error().message(), "589824 passes"), "%s", taken.error().message().c_str());
  cr_assert_not(training.is_known(), "nor is it kept in the state file");
}

Test(job_training, a_program_that_says_its_chunks_is_planned_for_with_chunks) {
  const auto takes = [](const JobTraining& training) {
    return training.seen(kTwo, kTwo, live_machines(), planner::Consistency::exact)->takes_chunks;
  };
  cr_assert_not(takes(taken(kOnTwo)));
  control::Profile message = kOnTwo.message();
  message.profile.set("takes_chunks", true);
  JobTraining training;
  cr_assert(training.take(message, kTwo, kTwo, *live_machines()).ok());
  cr_assert(takes(training));
  cr_assert(takes(JobTraining::from_json(*Json::parse(training.to_json().dump())).value()));
}

Test(job_training, the_share_of_weights_is_kept_when_a_later_plan_does_not_show_it) {
  const auto share_after = [](JobTraining& training, double weights_s) {
    control::Profile message = kOnTwo.message();
    for (Json group : message.profile.at("groups").items())
      if (weights_s > 0)
        group.set("weights_s", weights_s * group.number_at("bwd_s", 0, 1e9).value());
    cr_assert(training.take(message, kTwo, kTwo, *live_machines()).ok());
    return training.seen(kTwo, kTwo, live_machines(), planner::Consistency::exact)
        ->coefficients->types[0]
        .weights_share;
  };
  JobTraining training;
  cr_assert_eq(share_after(training, 0), 0);
  cr_assert_float_eq(share_after(training, 0.3), 0.3, 1e-9);
  cr_assert_float_eq(share_after(training, 0), 0.3, 1e-9);
}

Test(job_training, a_report_with_other_chunks_than_decided_is_not_of_that_plan) {
  for (const bool says_chunks : {true, false}) {
    JobTraining training = taken(kOnTwo);
    plan::Plan chunked = kOnTwo.plan();
    chunked.stages[0].chunks = {6, 4};
    chunked.schedule = "zero-bubble";
    training.told().decide(chunked, 0);
    Reported later = kOnTwo;
    later.generation = 1;
    control::Profile message = later.message();
    if (says_chunks) message.profile.set("takes_chunks", true);
    cr_assert(training.take(message, kTwo, kTwo, *live_machines()).ok());
    cr_assert_eq(training.told().makes_own_plans(), says_chunks, "older agents leave chunks out");
  }
}

Test(job_training, a_program_with_mtp_heads_runs_a_plan_that_lists_no_chunks) {
  JobTraining training = taken(kOnTwo);
  training.told().decide(kOnTwo.plan(), 0);
  plan::Plan run = kOnTwo.plan();
  run.stages[0].chunks = {run.stages[0].layers + 2 + 2 * 2};  // embedding, head, two MTP heads
  Reported later = kOnTwo;
  later.generation = 1;
  control::Profile message = later.message();
  message.profile.set("plan", run.to_json());
  message.profile.set("takes_chunks", true);
  static_cast<void>(training.take(message, kTwo, kTwo, *live_machines()));
  cr_assert_not(training.told().makes_own_plans());
}

Test(job_training, a_plan_with_a_stage_without_layers_is_refused) {
  plan::Plan bare = kOnTwo.plan();
  bare.stages.push_back(bare.stages[0]);
  bare.stages[0].groups.pop_back();
  bare.stages[1].groups.erase(bare.stages[1].groups.begin());
  bare.stages[0].chunks = {9};
  bare.stages[1].layers = 0;
  bare.stages[1].chunks = {1};
  const auto refused = JobTraining().check_plan(bare, kTwo, kTwo, *live_machines());
  cr_assert_not(refused.ok());
  cr_assert(has(refused.error().message(), "stage 1 of its plan has no layer"), "%s",
            refused.error().message().c_str());
}

Test(job_training, a_plan_that_was_refused_says_nothing_of_the_program) {
  const auto decided = [](bool is_run) {
    JobTraining training = taken(kOnTwo);
    plan::Plan other = kOnFour.plan();
    other.stages[0].layers -= 1;
    other.stages.push_back(other.stages[0]);
    other.stages[1].layers = 1;
    other.stages[0].groups.resize(2);
    other.stages[1].groups.erase(other.stages[1].groups.begin(),
                                 other.stages[1].groups.begin() + 2);
    training.told().decide(other, 3);
    if (!is_run) training.told().refuse();
    control::Profile later = kOnFour.message();
    later.generation = 4;
    static_cast<void>(training.take(later, kTwo, kFour, *live_machines()));
    return training.told().makes_own_plans();
  };
  cr_assert(decided(true));
  cr_assert_not(decided(false));
}

Test(job_training, an_owners_plan_with_a_tp_group_over_two_allocations_is_refused) {
  const JobTraining training = taken(kOnTwo);
  plan::Allocations allocations;
  allocations.add(0, 0b11);
  allocations.add(0, 0b1100);
  plan::Plan plan = kOnFour.plan();
  const auto check = [&] {
    return training.check_plan(plan, kTwo, kFour, *live_machines(), allocations);
  };
  cr_assert(check().ok());
  plan::Stage& stage = plan.stages[0];
  stage.tp = 2;
  stage.groups = {stage.groups[0], stage.groups[1]};
  for (plan::TpGroup& group : stage.groups) group.local_batch *= 2;
  stage.groups[0].gpus = {0, 1};
  stage.groups[1].gpus = {2, 3};
  cr_assert(check().ok(), "%s", check().ok() ? "" : check().error().message().c_str());
  stage.groups[0].gpus = {0, 2};
  stage.groups[1].gpus = {1, 3};
  cr_assert_not(check().ok());
  cr_assert(has(check().error().message(), "over two allocations"));
}
