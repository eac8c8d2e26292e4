// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/gavel.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <random>

#include "core/policy/rivals/fair_program.h"
#include "core/policy/rivals/registry.h"
#include "support/rival_views.h"

using namespace swell;
using namespace swell::policy;
using support::RivalView;

namespace {

models::Model named(const char* name) { return models::find_model(name)->model; }

double rate_of(const FairProgram& program, const std::vector<std::vector<double>>& share,
               std::size_t job) {
  double rate = 0;
  for (std::size_t k = 0; k < share[job].size(); ++k)
    rate += share[job][k] * program.jobs[job][k].rate;
  return rate;
}

double least_of(const FairProgram& program, const std::vector<std::vector<double>>& share) {
  double least = 1e300;
  for (std::size_t job = 0; job < share.size(); ++job)
    least = std::min(least, rate_of(program, share, job));
  return least;
}

/// The greatest least rate, by trying all shares in steps of 1 / `parts`.
double brute_force(const FairProgram& program, std::size_t job,
                   std::vector<std::vector<double>>& share, std::vector<double>& left, int parts) {
  if (job == program.jobs.size()) return least_of(program, share);
  double best = 0;
  const auto& choices = program.jobs[job];
  for (int first = 0; first <= parts; ++first)
    for (int second = 0; first + second <= parts; ++second) {
      const double shares[] = {static_cast<double>(first) / parts,
                               static_cast<double>(second) / parts};
      bool fits = true;
      for (std::size_t k = 0; k < 2; ++k) {
        left[static_cast<std::size_t>(choices[k].type)] -= shares[k] * choices[k].gpus;
        share[job][k] = shares[k];
        fits = fits && left[static_cast<std::size_t>(choices[k].type)] >= -1e-9;
      }
      if (fits) best = std::max(best, brute_force(program, job + 1, share, left, parts));
      for (std::size_t k = 0; k < 2; ++k)
        left[static_cast<std::size_t>(choices[k].type)] += shares[k] * choices[k].gpus;
    }
  return best;
}

/// One node of each of two types, all GPUs idle.
RivalView two_types() { return RivalView(cluster::preset("1x8-h100+1x8-v100").value()); }

std::map<JobId, int> type_of_each(const RivalView& on, const Decisions& decisions) {
  support::carry_out(on, decisions);
  std::map<JobId, int> types;
  for (const NewPlan& plan : decisions.plans)
    if (!plan.layout.stages.empty()) {
      const auto& group = plan.layout.stages[0].groups[0];
      types[plan.job] = on.machines->type_of({group.node, std::countr_zero(group.gpus)});
    }
  return types;
}

}  // namespace

Test(gavel, the_program_is_as_fair_as_trying_all_shares_and_within_what_there_is) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> rate(0.5, 4);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr int kParts = 8;
  for (int i = 0; i < 40; ++i) {
    FairProgram program{{2 + below(3), 2 + below(3)}, {}};
    for (int job = 0; job < 3; ++job)
      program.jobs.push_back({{0, 1 + below(2), rate(random)}, {1, 1 + below(2), rate(random)}});
    const auto share = fair_shares(program, false);
    std::vector<double> used(2, 0);
    for (std::size_t job = 0; job < 3; ++job) {
      double time = 0;
      for (std::size_t k = 0; k < 2; ++k) {
        const FairChoice& one = program.jobs[job][k];
        used[static_cast<std::size_t>(one.type)] += share[job][k] * one.gpus;
        time += share[job][k];
      }
      cr_assert_leq(time, 1 + 1e-6);
    }
    for (std::size_t t = 0; t < 2; ++t) cr_assert_leq(used[t], program.capacity[t] + 1e-6);
    std::vector<std::vector<double>> tried(3, std::vector<double>(2));
    std::vector<double> left(program.capacity.begin(), program.capacity.end());
    const double best = brute_force(program, 0, tried, left, kParts),
                 found = least_of(program, share);
    cr_assert_geq(found, best - 1e-5, "case %d: %f, all shares: %f", i, found, best);
    cr_assert_leq(found, best + 3 * 4.0 / kParts, "case %d: %f, all shares: %f", i, found, best);
  }
}

Test(gavel, what_fairness_leaves_goes_where_the_sum_is_greatest) {
  // The least rate is that of the first job, whatever the others get.
  const FairProgram program{{4}, {{{0, 1, 0.1}}, {{0, 1, 2}}, {{0, 2, 3}}, {{0, 8, 9}}}};
  const auto share = fair_shares(program, false);
  cr_assert_float_eq(share[0][0], 1, 1e-5);
  cr_assert_float_eq(share[1][0], 1, 1e-5);
  cr_assert_float_eq(share[2][0], 1, 1e-5);
  cr_assert_eq(share[3][0], 0, "more GPUs than there are");
  const FairProgram scarce{{1}, {{{0, 1, 1}}, {{0, 1, 3}}}};
  const auto fair = fair_shares(scarce, false), sum = fair_shares(scarce, true);
  cr_assert_float_eq(fair[0][0], 0.75, 1e-4, "both have a rate of 0.75");
  cr_assert_float_eq(sum[1][0], 1, 1e-6);
  cr_assert(fair_shares({{4}, {}}, false).empty());
}

Test(gavel, each_job_runs_on_the_type_that_is_worth_most_for_it) {
  // Each of two jobs wants all GPUs of a node: that which loses more on the slow type gets the
  // fast one, in whichever order they came.
  for (const bool swapped : {false, true}) {
    RivalView on = two_types();
    const auto a = on.training(named("gpt2-350m"), {1, 8, 1, 16}),
               b = on.training(named("gpt2-1.3b"), {1, 8, 1, 16});
    on.pend(1, swapped ? b : a, 8);
    on.pend(2, swapped ? a : b, 8);
    on.view.queue[0].max_gpus = on.view.queue[1].max_gpus = 16;  // elastic, for its rivals
    Gavel::Options options;
    options.sum = 1;
    const auto types = type_of_each(on, Gavel(options).decide(on.view));
    cr_assert_eq(types.size(), 2u);
    CurveCache curves;
    const auto faster = [&](const std::shared_ptr<Training>& of) {
      double speed[2];
      for (int type = 0; type < 2; ++type)
        speed[type] =
            curves.get(of, on.machines, type, {}, 8, Sizes::powers_of_two)->back().throughput;
      return speed[0] / (speed[0] + speed[1]) - speed[1] / (speed[0] + speed[1]);
    };
    const JobId first = swapped ? 2 : 1, second = swapped ? 1 : 2;
    cr_assert_neq(faster(a), faster(b));
    cr_assert_eq(types.at(first), faster(a) > faster(b) ? 0 : 1);
    cr_assert_eq(types.at(second), faster(a) > faster(b) ? 1 : 0);
  }
}

Test(gavel, a_job_keeps_the_number_that_its_user_asked_for) {
  RivalView on(support::h100_nodes(4));
  on.pend(1, on.training(named("gpt2-1.3b"), {1, 4, 1, 16}), 32);
  cr_assert_eq(support::carry_out(on, Gavel().decide(on.view))[1], 4, "28 GPUs stay idle");
}

Test(gavel, who_has_received_less_of_its_share_has_the_next_round) {
  // Two jobs of all GPUs: one runs and has had them since it came, the other waits.
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-1.3b"), {1, 8, 1, 16});
  ElasticJobView& runs = on.run(1, *training, {1, 8, 1, 16}, 16);
  runs.submitted_s = on.view.now_s - 4000;
  runs.held_s = {4000};
  PendingDemand& waits = on.pend(2, training, 16, on.view.now_s - 4000);
  auto next = support::carry_out(on, Gavel().decide(on.view));
  cr_assert_eq(next[1], 0);
  cr_assert_eq(next[2], 8);
  runs.held_s = {1000};
  waits.held_s = {3000};
  auto stays = support::carry_out(on, Gavel().decide(on.view));
  cr_assert_eq(stays[1], 8);
  cr_assert_eq(stays[2], 0);
}

Test(gavel, a_parameter_out_of_range_is_named_with_what_may_be_given) {
  const auto why = [](const Parameters& given) {
    const auto made = make_simulated_policy("gavel", {.parameters = given});
    return made ? "" : made.error().message();
  };
  cr_assert_eq(why({{"sum", 1}, {"round", 60}}), "");
  cr_assert_eq(why({{"sum", 2}}), "sum of 2 is out of range; give 0 to 1");
  cr_assert_eq(why({{"sum", 0.5}}), "sum of 0.5 is not a whole number; give one from 0 to 1");
  cr_assert_eq(why({{"round", 0}}), "round of 0 is out of range; give 1 to 1000000");
}
