// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/refine.h"

#include <criterion/criterion.h>

#include "core/helpers.h"
#include "core/planner/initial_plans.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::planner;

namespace {

/// Eleven GPUs of three nodes, and many plans from scratch on them.
struct Starts {
  Starts() {
    coefficients.activ_bytes = 1 << 24;
    coefficients.param_bytes = 3e8;
    for (const auto& [node, mask] : {std::pair{0, 0x0Fu}, {1, 0x07u}, {2, 0x0Fu}})
      add_to(gpus, node, 0, mask);
  }
  models::Model model = support::small_model(6, 64);
  cluster::Cluster cluster = support::h100_nodes(3, 8);
  perf::Coefficients coefficients = support::round_coefficients();
  perf::PerformanceModel perf{model, cluster, coefficients, perf::Sends::counted};
  Degrees degrees = degrees_for(model.heads, 16);
  Islands gpus;
};

}  // namespace

Test(refine, rounds_that_are_known_change_nothing_but_how_long_it_takes) {
  const Starts problem;
  Evaluator evaluator(problem.perf, 16), fresh(problem.perf, 16);
  const std::vector<Solution> starts = initial_plans(evaluator, problem.gpus, 4, problem.degrees);
  cr_assert_geq(starts.size(), 5u);
  KnownRounds known;
  int rounds_known = 0;
  for (const bool deep : {false, true})
    for (const Solution& start : starts) {
      rounds_known += known.find(start) != nullptr;
      Solution with = start, without = start;
      const long before = evaluator.evaluated(), before_fresh = fresh.evaluated();
      refine(with, evaluator, problem.degrees, known, 3, deep);
      KnownRounds none;
      refine(without, fresh, problem.degrees, none, 3, deep);
      cr_assert(with.layout == without.layout);
      cr_assert(with.idle == without.idle);
      cr_assert_eq(with.seconds, without.seconds);
      cr_assert_str_eq(with.why.c_str(), without.why.c_str());
      cr_assert_eq(evaluator.evaluated() - before, fresh.evaluated() - before_fresh,
                   "what need not be done again counts as effort all the same");
    }
  cr_assert_geq(rounds_known, static_cast<int>(starts.size()), "the second pass meets the first's");
}

Test(refine, several_threads_make_of_each_plan_what_one_does) {
  const Starts problem;
  const auto refined = [&](Executor* executor) {
    Evaluator evaluator(problem.perf, 16);
    std::vector<Solution> all = initial_plans(evaluator, problem.gpus, 4, problem.degrees);
    KnownRounds known;
    refine_each(
        all, evaluator, problem.degrees, known, [](const Solution&) { return 3; }, executor);
    refine(all.front(), evaluator, problem.degrees, known, 3, true, executor);
    return std::pair(std::move(all), evaluator.evaluated());
  };
  Helpers helpers(2, [](std::function<void()> body) { return std::thread(std::move(body)); });
  const auto [alone, evaluated] = refined(nullptr);
  cr_assert_gt(alone.size(), 4u, "or all are refined by one");
  const auto [together, counted] = refined(&helpers);
  cr_assert_eq(counted, evaluated);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    cr_assert(together[i].layout == alone[i].layout);
    cr_assert(together[i].idle == alone[i].idle);
    cr_assert_eq(together[i].seconds, alone[i].seconds);
    cr_assert_str_eq(together[i].why.c_str(), alone[i].why.c_str());
  }
}

Test(refine, a_round_is_known_of_the_same_idle_gpus_alone) {
  const Starts problem;
  Evaluator evaluator(problem.perf, 16);
  Solution start = initial_plans(evaluator, problem.gpus, 4, problem.degrees).front();
  Solution refined = start;
  KnownRounds known;
  refine(refined, evaluator, problem.degrees, known, 1);
  cr_assert(known.find(start) != nullptr);
  add_to(start.idle, 2, 0, 0x10);
  cr_assert(known.find(start) == nullptr);
}
