// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: how generations begin, grow, shrink and end.
#include <csignal>

#include "launcher/generation_run.h"

using namespace generation_run;

Test(generations, the_basic_workers_start_when_all_are_there) {
  Run run;
  cr_assert_eq(run.steps, Jobs{job});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.machine.status().generation, 0);
}

Test(generations, workers_of_each_generation_know_their_swellrun_among_those_of_the_job) {
  GenerationMachine::Settings settings;
  settings.run = "node1-42-a";
  Run run(settings);
  const auto all_know = [&run] {
    return std::all_of(
        run.last_start.workers.begin(), run.last_start.workers.end(), [](const auto& worker) {
          const Environment& given = worker.second;
          return std::find(given.begin(), given.end(),
                           std::pair<std::string, std::string>("SWELL_RUN", "node1-42-a")) !=
                 given.end();
        });
  };
  cr_assert(all_know());
  run.grown();
  cr_assert(all_know());
}

Test(generations, workers_know_whether_their_job_is_exact) {
  const auto told = [](const Run& run) {
    std::vector<std::string> words;
    for (const auto& [id, environment] : run.last_start.workers)
      for (const auto& [name, value] : environment)
        if (name == "SWELL_CONSISTENCY") words.push_back(value);
    return words;
  };
  GenerationMachine::Settings settings;
  cr_assert(told(Run(settings)) == std::vector<std::string>(2, "relaxed"));
  settings.exact = true;
  Run run(settings);
  cr_assert(told(run) == std::vector<std::string>(2, "exact"));
  run.grown();
  cr_assert_gt(told(run).size(), 2u);
  cr_assert_eq(told(run).back(), "exact");
}

Test(generations, workers_are_counted_on_each_host_beside_those_of_their_allocation) {
  Run run;  // two workers on node1
  run.event([&] {
    Grow message;
    message.offers.resize(1);
    run.machine.handle(run.now, message);
    run.machine.handle(run.now,
                       event::Allocated{{{"nonce", 9, "", {worker_node(0, 0, "node1", 2)}}}});
  });
  run.hello(1, 2);
  run.leave(0, 2);
  std::vector<std::string> ranks, of_allocation, generations, former;
  for (const auto& [id, environment] : run.last_start.workers)
    for (const auto& [name, value] : environment) {
      if (name == "SWELL_GENERATION") generations.push_back(value);
      if (name == "SWELL_EPOCH") former.push_back(value);
      if (name == "SWELL_HOST_LOCAL_RANK") ranks.push_back(value);
      if (name == "LOCAL_RANK") of_allocation.push_back(value);
    }
  cr_assert(of_allocation == std::vector<std::string>({"0", "1", "0", "1"}));
  cr_assert(ranks == std::vector<std::string>({"0", "1", "2", "3"}));
  cr_assert(generations == std::vector<std::string>(4, "1") && former == generations);
}

Test(generations, the_program_s_end_is_the_run_s_end) {
  Run run;
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 0);
}

Test(generations, growing_disturbs_nobody_until_the_new_workers_are_up) {
  Run run;
  run.grow(9, 4);
  cr_assert_eq(run.state(), JobState::warming);
  cr_assert_eq(run.steps, (Jobs{job, 9}));
  run.hello(1, 3);
  cr_assert(run.signals.empty());
  run.handle(event::Hello{{1, 3}, "host", 1});
  cr_assert(run.signalled(SIGUSR1, 2));
  cr_assert_eq(run.state(), JobState::switching);
  run.now += 1.5;
  run.leave(0, 2);
  cr_assert_eq(run.workers, 6u);
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.machine.status().generation, 1);
  cr_assert_float_eq(run.machine.status().stopped_s, 1.5, 1e-9);
  // Rank 0 is in the basic allocation.
  cr_assert_eq(run.last_start.workers.front().first.node, 0);
}

Test(generations, a_pause_lasts_until_the_new_workers_are_ready) {
  Run run;
  const auto pauses = [&run] {
    std::vector<double> found;
    for (const action::Note& each : run.notes)
      if (each.event == "resumed") found.push_back(*each.details.number_at("stopped_s", 0, 1e9));
    return found;
  };
  run.grow(9, 4);
  run.deaf = true;
  run.hello(1, 4);
  run.now += 1;
  run.leave(0, 2);
  cr_assert_eq(run.starts, 2);
  run.now += 8;
  cr_assert(pauses().empty());
  run.listen();
  cr_assert(pauses() == std::vector<double>{9});
  // Those that are lost before they are ready belong to the same pause.
  run.handle(event::Lost{{1, 0}});
  run.leave(0, 2, {0, SIGKILL});
  run.leave(1, 4, {0, SIGKILL});
  cr_assert_eq(run.starts, 3);
  run.now += 3;
  run.handle(event::Exited{{0, 0}, {}});
  run.handle(event::Exited{{0, 1}, {}});
  cr_assert_eq(pauses().size(), 2u, "also of programs that never say that they are");
}

Test(generations, a_refused_grant_changes_nothing) {
  Run run;
  Grow grow;
  grow.offers.resize(1);
  run.handle(grow);
  run.handle(event::Allocated{{{"nonce", 0, "busy", {}}}});
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.steps, Jobs{job});
  cr_assert(run.signals.empty());
}

Test(generations, a_companion_whose_step_does_not_come_up_is_given_back) {
  Run run;
  run.grow(9, 4);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert(run.signals.empty());
  cr_assert_eq(run.starts, 1);
}

Test(generations, a_shrink_releases_before_the_others_have_left) {
  Run run;
  run.grown();
  run.shrink(9, 20);
  cr_assert(run.signalled(SIGUSR1, 6));
  cr_assert_eq(run.state(), JobState::draining);
  run.leave(1, 4);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.starts, 2);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  run.handle(event::Released{9});
  cr_assert(std::holds_alternative<Released>(run.told.back()));
}

Test(generations, a_companion_that_never_took_part_is_given_back_at_once) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 2);
  run.shrink(9, 20);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert(run.signals.empty());
}

Test(generations, a_shrink_while_switching_goes_into_the_same_stop) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 4);
  cr_assert_eq(run.state(), JobState::switching);
  run.shrink(9, 20);
  cr_assert_eq(run.releases, Jobs{9});
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 2);
}

Test(generations, a_grant_during_a_stop_joins_later) {
  Run run;
  run.grown();
  run.shrink(9, 20);
  run.grow(12, 2);
  run.leave(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  run.hello(2, 2);
  cr_assert_eq(run.state(), JobState::switching);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 4u);
}

Test(generations, growth_waits_until_every_worker_handles_the_signal) {
  Run run;
  run.deaf = true;
  run.grown();
  run.grow(12, 2);
  run.hello(2, 2);
  cr_assert(run.signals.empty());
  cr_assert_eq(run.no_growth(), std::string("6 of 6 workers have no handler for USR1 yet"));
  run.listen();
  cr_assert(run.signalled(SIGUSR1, 6));
  cr_assert_eq(run.no_growth(), std::string());
}

Test(generations, only_as_many_workers_run_as_the_program_can_run_with) {
  Run run;
  run.handle(event::CanRunWith{{2, 3, 5}});
  cr_assert(std::get<Status>(run.told.back()).sizes == (std::vector<int>{2, 3, 5}));
  run.grow(9, 4);
  run.hello(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 5u, "not 6");
  const std::size_t told = run.told.size();
  run.handle(event::CanRunWith{{2, 3, 5}});
  cr_assert_eq(run.told.size(), told, "no news");
}

Test(generations, as_many_workers_run_as_whole_steps_allow) {
  GenerationMachine::Settings settings;
  settings.step = 3;
  Run run(settings);
  run.grow(9, 4);
  run.hello(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 5u, "not 6");
}

Test(generations, a_program_that_says_late_that_it_cannot_use_lent_gpus_gives_them_back) {
  Run run;
  run.grown();
  run.handle(event::CanRunWith{{2, 7}});
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGUSR1, 6));
  run.leave(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
}

Test(generations, sizes_of_the_program_are_told_in_gpus) {
  GenerationMachine::Settings settings;
  settings.gpus_per_worker = 4;
  GenerationMachine machine(settings, {worker_node(0, job, "node1", 4)});
  machine.handle(0, event::CanRunWith{{1, 3, 500'000}});
  cr_assert(machine.status().sizes == (std::vector<int>{4, 12}), "no job has 2,000,000");
}

Test(generations, why_a_program_declines_more_workers_is_told_until_it_takes_that_back) {
  Run run;
  run.grown();
  run.handle(event::CanRunWith{{2}, "the checkpoint could not be written"});
  cr_assert_eq(run.machine.status().no_growth, std::string("the checkpoint could not be written"));
  run.grow(12, 2);
  run.hello(2, 2);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.releases, Jobs{12}, "what is lent to it goes back, what it has stays");
  run.handle(event::CanRunWith{{2}, "its schedule cannot be saved"});
  cr_assert_eq(run.machine.status().no_growth, std::string("its schedule cannot be saved"));
  run.handle(event::CanRunWith{{1, 2, 3}});
  cr_assert_eq(run.machine.status().no_growth, std::string());
}

Test(generations, a_program_that_never_handles_the_signal_is_left_as_it_is) {
  Run run;
  run.deaf = true;
  run.grown();
  run.grow(12, 2);
  run.hello(2, 2);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.releases, Jobs{12});
  cr_assert(run.signals.empty());
  cr_assert_eq(run.starts, 2);
  cr_assert_not(run.no_growth().empty());
}

Test(generations, a_job_that_gave_gpus_back_unused_may_be_offered_others) {
  Run run;
  run.deaf = true;
  run.grown();
  run.grow(12, 2);
  run.hello(2, 2);
  cr_assert_eq(run.state(), JobState::warming);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.releases, Jobs{12});
  cr_assert_eq(run.state(), JobState::active);
}

Test(generations, each_refusal_of_slurm_is_said_once) {
  Run run;
  Grow grow;
  grow.offers.resize(3);
  run.handle(grow);
  run.handle(event::Allocated{
      {{"a", 0, "Invalid qos", {}}, {"b", 0, "Invalid qos", {}}, {"c", 0, "busy", {}}}});
  cr_assert_eq(std::count(run.said.begin(), run.said.end(),
                          "GPUs were offered, but Slurm refused them: Invalid qos"),
               1);
  cr_assert(run.has_said("busy"));
}

Test(generations, sizes_leave_workers_without_a_part) {
  GenerationMachine::Settings settings;
  settings.sizes = {2, 4};
  Run run(settings);
  run.grow(9, 3);
  run.hello(1, 3);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 4u);
}
