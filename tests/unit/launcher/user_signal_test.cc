// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: the restart signal from a user, or from Slurm on a user's word.
#include <csignal>

#include "launcher/generation_run.h"
#include "launcher/signals.h"

using namespace generation_run;

namespace {

/// The restart signal by `scancel --signal`, which reaches programs by itself, or to swellrun.
void send(Run& run, bool to_swellrun) {
  run.event([&] {
    if (to_swellrun) run.machine.handle(run.now, event::Signalled{SIGUSR1});
    else run.machine.handle(run.now, event::Notice{{0, 0}, SIGUSR1});
  });
}

}  // namespace

Test(user_signal, workers_that_leave_for_it_are_started_again) {
  for (const bool to_swellrun : {false, true}) {
    Run run;
    run.grown();
    send(run, to_swellrun);
    cr_assert(run.signalled(SIGUSR1, to_swellrun ? 6 : 4), "those who have not had it from Slurm");
    run.leave(0, 2);
    run.leave(1, 4);
    cr_assert_not(run.code.has_value());
    cr_assert_eq(run.starts, 3);
    cr_assert_eq(run.workers, 6u);
    cr_assert(run.releases.empty());
    run.leave(0, 2);
    run.leave(1, 4);
    cr_assert_eq(run.code.value_or(-1), 0, "the end of the training");
  }
}

Test(user_signal, workers_that_use_it_for_something_else_train_on_and_still_may_grow) {
  for (const bool to_swellrun : {false, true}) {
    Run run;
    send(run, to_swellrun);
    run.tick(run.now + 30);
    cr_assert(run.signalled(SIGKILL, 0));
    cr_assert_eq(run.starts, 1);
    cr_assert_eq(run.state(), JobState::active);
    cr_assert_eq(run.no_growth(), std::string());
    cr_assert(run.has_said("did not leave within 30 s of USR1: they train on"));
    run.now += 61;
    run.leave(0, 2);
    cr_assert_eq(run.code.value_or(-1), 0, "the end of the training");
  }
}

Test(user_signal,
     a_checkpoint_that_takes_longer_than_the_restart_timeout_does_not_end_the_training) {
  Run run;
  send(run, false);
  run.tick(run.now + 30);
  run.now += 20;
  run.leave(0, 2);
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.starts, 2);
}

Test(user_signal, a_program_without_a_handler_dies_of_slurm_s_as_under_srun) {
  Run deaf;
  deaf.grow(9, 4);
  deaf.deaf = true;
  deaf.hello(1, 4);
  deaf.leave(0, 2);
  deaf.signals.clear();
  send(deaf, false);
  cr_assert_eq(deaf.state(), JobState::active, "nobody is waited for");
}

Test(user_signal, an_error_exit_for_it_is_the_program_s_own_and_ends_the_run) {
  for (const Exit exit : {Exit{9, 0}, Exit{0, SIGUSR1}}) {
    Run run;
    send(run, exit.code == 9);
    run.leave(0, 1, exit);
    run.tick(run.now + 3);
    cr_assert(run.signalled(SIGTERM, 1), "the others are ended for it");
    run.handle(event::Exited{{0, 1}, {}});
    cr_assert_eq(run.code.value_or(-1), exit.status());
    cr_assert_eq(run.starts, 1);
  }
}

Test(user_signal, a_program_that_dies_of_it_ends_the_run_though_the_job_has_grown) {
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGUSR2, SIGUSR1})
    for (const bool lent_first : {false, true}) {
      GenerationMachine::Settings settings;
      settings.recover_s = lent_first ? 300 : 0;
      Run run(settings);
      run.grown();
      run.handle(event::Notice{{0, 0}, signal});
      cr_assert(run.signalled(signal, 4), "those on lent GPUs have not had it from Slurm");
      for (const auto& [node, workers] : {std::pair(lent_first ? 1 : 0, lent_first ? 4 : 2),
                                          std::pair(lent_first ? 0 : 1, lent_first ? 2 : 4)})
        run.leave(node, workers, Exit{0, signal});
      run.tick(run.now + 3);
      cr_assert_eq(run.code.value_or(-1), 128 + signal, "signal %d: %d", signal,
                   run.code.value_or(-1));
      cr_assert_eq(run.starts, 2);
      cr_assert(run.has_said("after Slurm sent it " + signal_name(signal)));
    }
}

Test(user_signal, an_error_soon_after_one_that_ends_programs_is_for_it) {
  for (const double later_s : {10.0, 100.0}) {
    Run run;
    run.grown();
    run.handle(event::Notice{{0, 0}, SIGINT});
    run.tick(run.now + later_s);
    run.leave(0, 2, Exit{1, 0});
    run.tick(run.now + 3);
    const bool is_for_it = later_s < 60;
    cr_assert_eq(run.signalled(SIGTERM, 4), is_for_it, "%g s later", later_s);
    cr_assert_eq(run.has_said("on with the job's own GPUs"), !is_for_it, "%g s later", later_s);
  }
}

Test(user_signal, a_program_that_dies_of_it_while_the_job_grows_ends_the_run) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 4);
  cr_assert(run.signalled(SIGUSR1, 2), "they are asked to leave");
  run.handle(event::Notice{{0, 0}, SIGINT});
  run.leave(0, 2, Exit{0, SIGINT});
  run.tick(run.now + 3);
  cr_assert_eq(run.code.value_or(-1), 128 + SIGINT);
  cr_assert_eq(run.starts, 1);
}

Test(user_signal, a_training_that_ends_is_not_started_again) {
  Run run;
  run.handle(event::Exited{{0, 0}, {}});
  send(run, false);
  run.handle(event::Exited{{0, 1}, {}});
  cr_assert_eq(run.code.value_or(-1), 0);
  cr_assert_eq(run.starts, 1);
}

Test(user_signal, gpus_that_came_up_meanwhile_take_part_afterwards) {
  Run run;
  run.grow(9, 4);
  send(run, false);
  run.hello(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 6u);
}

Test(user_signal, gpus_that_go_back_meanwhile_do_so_in_their_time) {
  Run run;
  run.grown();
  send(run, true);
  run.shrink(9, 20);
  run.tick(run.now + 18);
  cr_assert(run.signalled(SIGKILL, 6), "who does not leave is killed, as without the signal");
}

Test(user_signal, what_comes_between_two_generations_reaches_the_next_programs) {
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGUSR2}) {
    Run run;
    run.deaf = true;
    run.grow(9, 4);
    run.hello(1, 4);
    for (int local = 0; local < 2; ++local)
      run.machine.handle(run.now, event::Exited{{0, local}, {}});
    run.collect();
    cr_assert_eq(run.starts, 1);
    run.handle(event::Notice{{0, 0}, signal});
    run.hello(0, 2);
    cr_assert_eq(run.starts, 2);
    cr_assert(run.signalled(signal, 0), "they would die of it before they handle it");
    run.listen();
    cr_assert(run.signalled(signal, 6));
    run.leave(0, 2, Exit{0, signal});
    run.leave(1, 4, Exit{0, signal});
    run.tick(run.now + 3);
    cr_assert_eq(run.code.value_or(-1), 128 + signal);
    cr_assert_eq(run.releases, Jobs{9});
  }
}

Test(user_signal, programs_that_handle_no_signal_are_sent_it_all_the_same) {
  Run run;
  run.deaf = true;
  run.grow(9, 4);
  run.hello(1, 4);
  for (int local = 0; local < 2; ++local)
    run.machine.handle(run.now, event::Exited{{0, local}, {}});
  run.handle(event::Notice{{0, 0}, SIGINT});
  run.hello(0, 2);
  cr_assert_leq(*run.machine.deadline(), run.now + 30);
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGINT, 6));
}

Test(user_signal, who_saves_and_ends_well_for_it_while_the_job_is_resized_does_so_once_more) {
  for (const bool before : {false, true}) {  // it was sent as nobody was asked to leave yet
    Run run;
    run.grow(9, 4);
    if (before) run.handle(event::Notice{{0, 0}, SIGINT});
    run.hello(1, 4);
    cr_assert(run.signalled(SIGUSR1, 2), "they are asked to leave");
    if (!before) run.handle(event::Notice{{0, 0}, SIGINT});
    run.leave(0, 2);
    cr_assert_eq(run.starts, 2);
    cr_assert(run.signalled(SIGINT, 6));
    run.leave(0, 2);
    run.leave(1, 4);
    cr_assert_eq(run.code.value_or(-1), 0);
    cr_assert_eq(run.starts, 2);
  }
}

Test(user_signal, who_trains_on_though_asked_to_leave_is_not_sent_it_twice) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 4);
  run.handle(event::Notice{{0, 0}, SIGINT});
  run.tick(run.now + 30);
  cr_assert_eq(run.state(), JobState::active);
  run.tick(run.now + 31);
  cr_assert(run.signalled(SIGINT, 0));
}

Test(user_signal, what_dies_of_it_as_others_have_ended_and_gpus_go_back_ends_the_run) {
  for (const bool lent_first : {false, true}) {
    Run run;
    run.grown();
    run.handle(event::Exited{{0, 1}, {}});
    run.shrink(9, 60);
    cr_assert(run.signalled(SIGUSR1, 0), "they may be at their end, too");
    run.handle(event::Notice{{0, 0}, SIGINT});
    if (lent_first) run.leave(1, 4, Exit{0, SIGINT});
    run.leave(0, 1, Exit{0, SIGINT});
    if (!lent_first) run.leave(1, 4, Exit{0, SIGINT});
    run.tick(run.now + 3);
    cr_assert_eq(run.code.value_or(-1), 128 + SIGINT);
    cr_assert_eq(run.starts, 2);
  }
}
