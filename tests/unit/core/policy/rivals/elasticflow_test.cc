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
