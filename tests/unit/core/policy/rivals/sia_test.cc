// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/sia.h"

#include <cmath>
#include <criterion/criterion.h>
#include <random>

#include "core/policy/rivals/allocation_set.h"
#include "support/rival_views.h"

using namespace swell;
using namespace swell::policy;
using support::RivalView;

namespace {

models::Model named(const char* name) { return models::find_model(name)->model; }

/// The best there is, by trying everything.
double brute_force(const AllocationProgram& program, std::size_t job, std::vector<int>& left) {
  if (job == program.jobs.size()) return 0;
  double best = brute_force(program, job + 1, left);
  for (const Choice& choice : program.jobs[job]) {
    int& there = left[static_cast<std::size_t>(choice.type)];
    if (there < choice.gpus) continue;
    there -= choice.gpus;
    best = std::min(best, choice.cost + brute_force(program, job + 1, left));
    there += choice.gpus;
  }
  return best;
}

AllocationProgram random_program(std::mt19937& random, int jobs, int types) {
  std::uniform_real_distribution<double> share(0, 1);
  AllocationProgram program;
  for (int t = 0; t < types; ++t) program.capacity.push_back(4 + static_cast<int>(random() % 12));
  for (int j = 0; j < jobs; ++j) {
    std::vector<Choice> choices;
    for (int t = 0; t < types; ++t) {
      const double efficiency = 0.6 + 0.4 * share(random);
      for (int gpus = 1; gpus <= 16; gpus *= 2)
        choices.push_back({t, gpus, std::pow(std::pow(gpus, efficiency), -0.5) - 1.1});
    }
    program.jobs.push_back(choices);
  }
  return program;
}

}  // namespace

Test(sia, the_program_finds_what_brute_force_finds) {
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const AllocationProgram program = random_program(random, 1 + i % 5, 1 + i % 2);
    std::vector<int> left = program.capacity;
    const double best = brute_force(program, 0, left);
    const Allocation found = minimize(program);
    cr_assert_leq(found.cost, best + 1e-3 * std::abs(best) + 1e-9, "case %d: %f, best %f", i,
                  found.cost, best);
    cr_assert_geq(found.cost, best - 1e-9);
  }
}

Test(sia, rounding_keeps_within_the_gpus_there_are_and_leaves_none_that_would_help) {
  std::mt19937 random(4);
  for (int i = 0; i < 30; ++i) {
    const AllocationProgram program = random_program(random, 40, 2);
    const Allocation rounded = round_down(program, std::vector<std::vector<double>>(40));
    std::vector<int> left = program.capacity;
    for (std::size_t j = 0; j < 40; ++j)
      if (rounded.chosen[j] >= 0) {
        const Choice& choice = program.jobs[j][static_cast<std::size_t>(rounded.chosen[j])];
        left[static_cast<std::size_t>(choice.type)] -= choice.gpus;
      }
    cr_assert(left[0] == 0 && left[1] == 0);
    cr_assert_leq(minimize(program).cost, rounded.cost + 1e-12);
  }
}

Test(sia, configurations_are_powers_of_two_in_a_node_and_whole_nodes) {
  RivalView on(support::h100_nodes(4));
  on.pend(1, on.training(named("gpt2-1.3b"), {1, 4, 1, 16}), 32);
  on.pend(2, on.training(named("llama2-13b"), {1, 4, 4, 16}), 32);
  const auto jobs = contenders(on.view);
  CurveCache curves;
  std::vector<int> data_parallel, hybrid;
  for (const Configuration& one : configurations(jobs[0], on.view, GpuPool(on.view), curves))
    data_parallel.push_back(one.gpus);
  for (const Configuration& one : configurations(jobs[1], on.view, GpuPool(on.view), curves))
    hybrid.push_back(one.gpus);
  cr_assert(data_parallel == (std::vector<int>{1, 2, 4, 8, 16, 32}));
  cr_assert(hybrid == (std::vector<int>{4, 8, 16, 32}),
            "multiples of its cell of 4; 24 = 6 replicas do not divide the batch");
}

Test(sia, the_queueing_penalty_says_whether_all_get_little_or_one_waits) {
  RivalView on(support::h100_nodes(1));
  const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  for (JobId id = 1; id <= 5; ++id) on.pend(id, training, 8);
  for (const double penalty : {1.1, 3.0}) {
    Sia::Options options;
    options.queueing_penalty = penalty;
    options.growth = 0;
    auto has = support::carry_out(on, Sia(options).decide(on.view));
    int sum = 0, run = 0;
    for (JobId id = 1; id <= 5; ++id) sum += has[id], run += has[id] > 0;
    cr_assert_eq(sum, 8, "below what each asked for, and nothing idle");
    // Four with 2 GPUs and one in the queue: 4 * 2^-0.5 + 1.1 = 3.93; three with 2 and two with
    // 1: 4.12.
    cr_assert_eq(run, penalty < 2 ? 4 : 5);
  }
}

Test(sia, a_negative_power_shares_what_a_positive_one_gives_to_who_scales) {
  // One job scales perfectly, the other hardly; 8 GPUs.
  const auto chosen = [](double power, double penalty) {
    AllocationProgram program{{8}, {{}, {}}};
    for (int gpus = 1; gpus <= 8; gpus *= 2)
      for (const std::size_t job : {0u, 1u}) {
        const double powered = std::pow(std::pow(gpus, job == 0 ? 1.0 : 0.3), power);
        program.jobs[job].push_back({0, gpus, (power < 0 ? powered : -powered) - penalty});
      }
    return minimize(program).chosen;
  };
  cr_assert(chosen(-0.5, 1.1) == (std::vector<int>{2, 2}), "4 GPUs each");
  cr_assert(chosen(1, 0) == (std::vector<int>{3, -1}), "8 GPUs and none");
}

Test(sia, a_restart_has_to_pay) {
  cr_assert_eq(restart_factor(50, 0, 60), 1.0, "young jobs move for free");
  cr_assert_float_eq(restart_factor(540, 2, 60), 420.0 / 600, 1e-12);
  cr_assert_eq(restart_factor(100, 5, 60), 0.0);
  // A job that restarted often stays at 8 although 16 are idle; one that never did grows.
  for (const int restarts : {0, 40}) {
    RivalView on(support::h100_nodes(2));
    const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
    ElasticJobView& job = on.run(1, *training, {1, 8, 1, 16}, 16);
    job.submitted_s = job.started_s = 10000 - 2400;
    job.reconfigurations = restarts;
    cr_assert_eq(support::carry_out(on, Sia().decide(on.view))[1], restarts == 0 ? 16 : 8);
  }
}

Test(sia, a_job_starts_with_one_cell_and_at_most_doubles_what_it_has_trained_on) {
  const auto has = [](perf::Combination users, int tried, int growth) {
    RivalView on(support::h100_nodes(4));
    const auto training = on.training(named(users.tp == 1 ? "gpt2-1.3b" : "llama2-13b"), users);
    training->max_gpus_so_far = tried;
    on.pend(1, training, 32);
    Sia::Options options;
    options.growth = growth;
    return support::carry_out(on, Sia(options).decide(on.view))[1];
  };
  cr_assert_eq(has({1, 4, 1, 16}, 0, 2), 1, "though it asked for 4");
  cr_assert_eq(has({1, 4, 1, 16}, 4, 2), 8, "it had 4 before it was stopped");
  cr_assert_eq(has({1, 4, 4, 16}, 0, 2), 4, "a cell of tensor parallel 4");
  cr_assert_eq(has({1, 4, 4, 16}, 8, 2), 16);
  cr_assert_eq(has({1, 4, 1, 16}, 0, 0), 32, "any size");
}

Test(sia, a_job_that_keeps_its_configuration_keeps_its_gpus) {
  RivalView on(support::h100_nodes(2));
  const auto training = on.training(named("gpt2-1.3b"), {1, 4, 1, 16});
  on.run(1, *training, {1, 8, 1, 16}, 16);
  on.run(2, *training, {1, 8, 1, 16}, 16);
  cr_assert(Sia().decide(on.view).plans.empty());
}
