// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/elasticflow.h"

#include <criterion/criterion.h>

#include "support/rival_views.h"

using namespace swell;
using namespace swell::policy;
using support::RivalView;

namespace {

models::Model named(const char* name) { return models::find_model(name)->model; }

}  // namespace

Test(elasticflow, jobs_are_admitted_with_their_smallest_share_in_order) {
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("llama2-13b"), {1, 1, 4, 64});
  for (JobId id = 1; id <= 3; ++id) on.pend(id, training, 8);
  auto has = support::carry_out(on, ElasticFlow().decide(on.view));
  cr_assert_eq(has[1], 4);
  cr_assert_eq(has[2], 4);
  cr_assert_eq(has[3], 0, "the third has to wait");
}

Test(elasticflow, the_largest_marginal_return_gets_the_next_share) {
  // Three nodes: one of both can double to a second node.
  RivalView on(support::h100_nodes(3));
  const auto one = on.training(named("gpt2-350m"), {1, 1, 1, 16});
  const auto other = on.training(named("llama2-13b"), {1, 2, 4, 32});
  on.pend(1, one, 24);
  on.pend(2, other, 24);
  auto has = support::carry_out(on, ElasticFlow().decide(on.view));
  CurveCache curves;
  const auto point = [&](const std::shared_ptr<Training>& training, int gpus) {
    for (const planner::SymmetricRow& at :
         *curves.get(training, on.machines, 0, users_cell(*training), 24))
      if (at.gpus == gpus) return at.throughput;
    return 0.0;
  };
  const auto marginal = [&](const std::shared_ptr<Training>& training, int min) {
    return (point(training, 16) - point(training, 8)) / 8 / (point(training, min) / min);
  };
  const double first = marginal(one, 1), second = marginal(other, 4);
  cr_assert(first > 0 && second > 0 && first != second);
  cr_assert_eq(has[1], first > second ? 16 : 8);
  cr_assert_eq(has[2], first > second ? 8 : 16);
}

Test(elasticflow, a_new_job_takes_from_those_that_have_more_than_their_least) {
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  on.run(1, *training, {1, 8, 1, 16}, 8);
  on.pend(2, training, 8);
  auto has = support::carry_out(on, ElasticFlow().decide(on.view));
  cr_assert(has[1] == 4 && has[2] == 4);
}

namespace {

/// Samples that `training` does in `seconds` on `gpus`.
double work_of(const RivalView& on, const std::shared_ptr<Training>& training, int gpus,
               double seconds) {
  CurveCache curves;
  for (const auto& row :
       *curves.get(training, on.machines, 0, users_cell(*training), on.machines->gpu_count()))
    if (row.gpus == gpus) return row.throughput * seconds;
  return -1;
}

void give_deadline(const RivalView& on, PendingDemand& demand, double in_s, double samples) {
  demand.deadline_s = on.view.now_s + in_s;
  demand.remaining_samples = samples;
}

}  // namespace

Test(elasticflow, a_job_with_a_deadline_gets_the_least_share_that_keeps_it_before_others) {
  for (const int gpus : {1, 2, 4}) {
    RivalView on(support::h100_nodes(1));
    const auto small = on.training(named("gpt2-350m"), {1, 1, 1, 16});
    for (JobId id = 1; id <= 9; ++id) on.pend(id, small, 8);
    PendingDemand& owed = on.pend(10, small, 8);
    give_deadline(on, owed, 1060, work_of(on, small, gpus, 999));
    auto has = support::carry_out(on, ElasticFlow().decide(on.view));
    cr_assert_eq(has[10], gpus);
    int waiting = 0;
    for (JobId id = 1; id <= 9; ++id) waiting += has[id] == 0;
    cr_assert_eq(waiting, gpus + 1, "the others have one GPU each, in their order");
    cr_assert_eq(has[9], 0);
  }
}

Test(elasticflow, an_urgent_job_goes_first_where_the_other_still_ends_in_time) {
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  give_deadline(on, on.pend(1, training, 8), 2000, work_of(on, training, 8, 900));
  give_deadline(on, on.pend(2, training, 8), 760, work_of(on, training, 8, 690));
  auto has = support::carry_out(on, ElasticFlow().decide(on.view));
  cr_assert_eq(has[2], 8);
  cr_assert_eq(has[1], 0, "promised the time from then on");
}

Test(elasticflow, the_last_to_come_is_refused_and_what_runs_keeps_its_share) {
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  ElasticJobView& first = on.run(1, *training, {1, 8, 1, 16}, 8);
  first.deadline_s = on.view.now_s + 2060;
  first.remaining_samples = work_of(on, training, 8, 1900);
  give_deadline(on, on.pend(2, training, 8), 760, work_of(on, training, 8, 600));
  auto has = support::carry_out(on, ElasticFlow().decide(on.view));
  cr_assert_eq(has[1], 8, "it was admitted: the more urgent one came later");
  cr_assert_eq(has[2], 0);
}

Test(elasticflow, a_refused_job_and_one_whose_length_is_not_known_run_as_without_a_deadline) {
  for (const double samples : {1e18, -1.0}) {
    RivalView on(support::h100_nodes(1)), plain(support::h100_nodes(1));
    const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
    give_deadline(on, on.pend(1, training, 8), 700, samples);
    plain.pend(1, plain.training(named("gpt2-1.3b"), {1, 4, 1, 16}), 8);
    const Decisions with = ElasticFlow().decide(on.view),
                    without = ElasticFlow().decide(plain.view);
    cr_assert_eq(with.plans.size(), 1u);
    cr_assert(with.plans[0].layout == without.plans[0].layout);
  }
}
