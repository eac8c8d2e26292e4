// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: a training that makes no steps any more.
#include <csignal>
#include <cstdint>
#include <string>

#include "launcher/generation_run.h"
#include "launcher/live_run.h"

using namespace generation_run;

namespace {

GenerationMachine::Settings hanging(double factor = 20, double minimum_s = 120) {
  GenerationMachine::Settings settings;
  settings.hang = {factor, minimum_s};
  settings.restart_timeout_s = 30;
  return settings;
}

/// A program that makes a step each `step_s` seconds.
template <typename R>
void train(R& run, int generation, int steps, double step_s = 1) {
  for (int step = 0; step < steps; ++step) {
    run.now += step_s;
    run.event([&] {
      run.machine.handle(run.now,
                         event::MadeSteps{generation, static_cast<std::uint64_t>(step) + 1});
    });
  }
}

/// Its workers hang for so long; the node still answers.
template <typename R>
void hang(R& run, int generation, double seconds) {
  for (const double until = run.now + seconds; run.now < until;) {
    run.now = std::min(run.now + 5, until);
    run.handle(event::MadeSteps{generation, 0});
    if (run.machine.deadline() && *run.machine.deadline() <= run.now) run.tick(run.now);
  }
}

std::size_t hangs(const Run& run) {
  return static_cast<std::size_t>(std::count_if(
      run.notes.begin(), run.notes.end(), [](const auto& note) { return note.event == "hung"; }));
}

}  // namespace

Test(hang, a_program_that_makes_no_step_is_started_again_after_it_was_asked_to_leave) {
  Run run(hanging());
  train(run, 0, 20);
  hang(run, 0, 119);
  cr_assert(run.signals.empty(), "nothing shorter than the minimum is a hang");
  hang(run, 0, 2);
  cr_assert_eq(hangs(run), 1u);
  cr_assert(run.signalled(SIGUSR1, 2), "one that only pauses loses nothing");
  cr_assert(run.signalled(SIGKILL, 0));
  cr_assert(
      run.has_said("the program has made no step for 121 s, where 1 s are usual: it is started "
                   "again, from its last checkpoint"));
  cr_assert_neq(run.no_growth().find("made no step for 121 s"), std::string::npos);
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGKILL, 2));
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.starts, 2);
  cr_assert_not(run.code);
}

Test(hang, lent_gpus_go_back_first_and_then_the_run_restarts_on_its_own) {
  Run run(hanging());
  run.grown();
  train(run, 1, 20);
  hang(run, 1, 121);
  cr_assert(run.signalled(SIGUSR1, 6));
  cr_assert(run.releases.empty(), "not before its workers have left");
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGKILL, 6));
  run.leave(1, 4, {0, SIGKILL});
  cr_assert(run.releases == Jobs{9});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.workers, 2u);
  cr_assert(run.has_said("on with the job's own GPUs"));
  // And it hangs again: a second time it waits twice as long.
  run.signals.clear();
  train(run, 2, 5);
  hang(run, 2, 239);
  cr_assert(run.signals.empty());
  hang(run, 2, 2);
  cr_assert(run.signalled(SIGUSR1, 2));
  cr_assert(run.has_said("it is started again, from its last checkpoint"));
  cr_assert_eq(hangs(run), 2u);
}

Test(hang, is_not_judged_before_a_usual_duration_is_known) {
  Run run(hanging());
  hang(run, 0, 5000);
  cr_assert(run.signals.empty(), "no step yet");
  train(run, 0, 5);
  hang(run, 0, 5000);
  cr_assert(run.signals.empty(), "too few to know what is usual");
}

Test(hang, is_not_judged_while_the_programs_of_a_new_generation_begin) {
  Run run(hanging());
  train(run, 0, 20);
  run.grown();
  hang(run, 1, 5000);
  cr_assert(run.signals.empty(), "it loads");
  run.handle(event::MadeSteps{1, 1});
  hang(run, 1, 5000);
  cr_assert(run.signals.empty(), "it compiles");
  train(run, 1, 3);
  hang(run, 1, 130);
  cr_assert_eq(hangs(run), 1u);
}

Test(hang, long_steps_and_pauses_that_were_seen_before_have_their_time) {
  Run slow(hanging());
  train(slow, 0, 20, 60);
  hang(slow, 0, 20 * 60 - 1);
  cr_assert_eq(hangs(slow), 0u);
  hang(slow, 0, 2);
  cr_assert_eq(hangs(slow), 1u);

  Run evaluates(hanging());
  train(evaluates, 0, 20);
  evaluates.now += 110;  // an evaluation
  evaluates.handle(event::MadeSteps{0, 100});
  hang(evaluates, 0, 219);
  cr_assert_eq(hangs(evaluates), 0u);
  hang(evaluates, 0, 2);
  cr_assert_eq(hangs(evaluates), 1u);
}

Test(hang, a_program_that_may_not_resume_is_started_again_only_where_its_owner_says_so) {
  for (const double recover_s : {0.0, 10.0}) {
    GenerationMachine::Settings settings = hanging();
    settings.recover_s = recover_s;
    settings.job = job;
    settings.restart_signal = SIGUSR1;
    GenerationMachine machine(settings, {worker_node(0, job, "node1", 1)});
    machine.start(100);
    machine.handle(100,
                   event::Hello{{0, 0}, "host", 1000});  // and its program never handles the signal
    for (int step = 1; step <= 20; ++step)
      machine.handle(100 + step, event::MadeSteps{0, static_cast<std::uint64_t>(step)});
    for (int later = 125; later < 400; later += 5) {
      machine.handle(later, event::MadeSteps{0, 0});
      machine.tick(later);
    }
    cr_assert_eq(machine.status().state == JobState::active, recover_s <= 0);
  }
}

Test(hang, is_never_seen_where_the_factor_is_0) {
  Run run(hanging(0));
  train(run, 0, 20);
  hang(run, 0, 100'000);
  cr_assert_eq(hangs(run), 0u);
}

Test(hang, a_suspended_job_does_not_hang) {
  Run run(hanging());
  train(run, 0, 20);
  run.tick(run.now + 5000);  // its nodes say nothing
  cr_assert_eq(hangs(run), 0u);
  hang(run, 0, 119);
  cr_assert_eq(hangs(run), 0u, "the time counts anew");
  hang(run, 0, 5);
  cr_assert_eq(hangs(run), 1u);

  Run stopped(hanging());
  train(stopped, 0, 20);
  stopped.now += 5000;
  stopped.handle(event::StoodStill{});
  stopped.handle(event::MadeSteps{0, 0});
  stopped.tick(stopped.now);
  cr_assert_eq(hangs(stopped), 0u);
}

Test(hang, where_no_steps_are_known_output_counts_after_it_has_come_for_long) {
  const auto writes = [](Run& run, double seconds) {
    for (const double until = run.now + seconds; run.now < until; run.now += 10) {
      run.handle(event::MadeSteps{0, 0});
      run.handle(event::Wrote{});
    }
  };
  Run brief(hanging());
  writes(brief, 300);  // it tells what it loads, and trains on without a word
  hang(brief, 0, 50'000);
  cr_assert_eq(hangs(brief), 0u);

  Run talks(hanging());
  writes(talks, 1000);
  hang(talks, 0, 349);
  cr_assert_eq(hangs(talks), 0u);
  hang(talks, 0, 15);
  cr_assert_eq(hangs(talks), 1u);
  cr_assert(talks.has_said("the program has written nothing for"));
}

Test(hang, workers_that_leave_when_they_are_asked_are_not_killed) {
  Run run(hanging());
  train(run, 0, 20);
  hang(run, 0, 121);
  run.leave(0, 2);
  cr_assert(run.signalled(SIGKILL, 0));
  cr_assert_eq(run.starts, 2);
  cr_assert_not(run.code);
}

Test(hang, a_run_that_hangs_again_and_again_ends) {
  GenerationMachine::Settings settings = hanging(2, 1);
  settings.max_restarts = 2;
  Run run(settings);
  for (int generation = 0; generation < 3; ++generation) {
    cr_assert_not(run.code);
    train(run, generation, 20);
    hang(run, generation, 60);
    run.leave(0, 2, {0, SIGKILL});
  }
  cr_assert(run.code && *run.code != 0);
}

Test(hang, a_program_that_trains_live_gives_lent_gpus_back_and_restarts) {
  live_run::Run run;
  run.grown();
  train(run, 1, 20);
  run.signals.clear();
  hang(run, 1, 1801);
  cr_assert(run.machine.status().state == JobState::draining);
  cr_assert(run.machine.status().no_growth.find("made no step") != std::string::npos);
}
