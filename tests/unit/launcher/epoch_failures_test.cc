// SPDX-License-Identifier: GPL-2.0-or-later
// The epoch machine: errors, losses, signals, and workers that do not leave.
#include <csignal>

#include "launcher/epoch_run.h"

using namespace epoch_run;

Test(epochs, an_error_exit_without_companions_ends_the_run_with_it) {
  Run run;
  run.event([&] { run.machine.exited(run.now, {0, 0}, {3, 0}); });
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGTERM, 1));
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 3);
  cr_assert_eq(run.starts, 1);
}

Test(epochs, a_death_by_signal_is_128_and_its_number) {
  Run run;
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGSEGV}); });
  run.tick(run.now);
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 128 + SIGSEGV);
}

Test(epochs, with_kill_on_bad_exit_0_the_others_may_finish) {
  EpochMachine::Settings settings;
  settings.kill_on_bad_exit = false;
  Run run(settings);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {3, 0}); });
  cr_assert(run.signals.empty());
  cr_assert_not(run.code.has_value());
  run.event([&] { run.machine.exited(run.now, {0, 1}, {}); });
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(epochs, who_has_not_left_before_the_deadline_is_killed) {
  Run run;
  run.grown();
  run.shrink(9, 10);
  cr_assert_float_eq(*run.machine.deadline(), run.now + 8, 1e-9);
  run.tick(run.now + 8);
  cr_assert(run.signalled(SIGKILL, 6));
  run.leave(1, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());
}

Test(epochs, a_warning_from_slurm_is_a_shrink) {
  Run run;
  run.grown();
  run.event([&] { run.machine.notice(run.now, {1, 0}, SIGTERM); });
  run.event([&] { run.machine.notice(run.now, {1, 1}, SIGTERM); });
  cr_assert(run.signalled(SIGUSR1, 6));
  run.leave(1, 4, {143, 0});
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  cr_assert_not(run.code.has_value());
}

Test(epochs, a_lost_companion_means_starting_again_without_it) {
  Run run;
  run.grown();
  for (int local = 0; local < 4; ++local) run.event([&] { run.machine.lost(run.now, {1, local}); });
  cr_assert(run.signalled(SIGKILL, 5));  // one of the six was lost when the first news came
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 3);
}

Test(epochs, gpus_whose_workers_are_lost_while_they_go_back_are_released) {
  for (const bool last : {true, false}) {
    Run run;
    run.grown();
    run.shrink(9, 30);
    if (last) run.leave(0, 2);
    for (int local = 0; local < 4; ++local)
      run.event([&] { run.machine.lost(run.now, {1, local}); });
    cr_assert_eq(run.releases, Jobs{9}, "the others' leave is not waited for");
    if (!last) run.leave(0, 2);
    cr_assert_eq(run.releases, Jobs{9});
    cr_assert_eq(run.workers, 2u);
    cr_assert_not(run.code.has_value());
  }
}

Test(epochs, an_error_is_forgiven_when_a_companion_s_loss_explains_it) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });  // its peer died
  run.now += 1;
  run.event([&] { run.machine.step_ended(run.now, 9, {0, SIGKILL}); });
  run.leave(1, 4, {0, SIGKILL});
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}); });
  run.hello(0, 2);
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());
}

Test(epochs, an_error_long_after_a_growth_is_the_program_s_own) {
  Run run;
  run.grown();
  run.now += 601;
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });
  cr_assert_not(run.code.has_value());
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGTERM, 5));
  run.leave(1, 4, {0, SIGTERM});
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 1);
  cr_assert_eq(run.releases, Jobs{9});
}

Test(epochs, an_error_soon_after_a_growth_means_going_on_as_before_it) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });
  run.tick(run.now + 2);
  cr_assert(run.signalled(SIGKILL, 5));
  run.event([&] { run.machine.hello(run.now, {0, 1}, "host", 1); });
  run.leave(1, 4, {0, SIGKILL});
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}); });
  run.event([&] { run.machine.hello(run.now, {0, 0}, "host", 1); });
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.no_growth(), std::string("the program failed with 1 over 6 workers"));
  cr_assert(run.has_said("the program failed with 1 over 6 workers: on with the job's own GPUs"));
  // The basic run's own failure ends it.
  run.event([&] { run.machine.exited(run.now, {0, 1}, {1, 0}); });
  run.tick(run.now);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 1);
}

Test(epochs, a_basic_worker_that_is_killed_ends_the_run_also_with_companions) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGKILL}); });
  run.tick(run.now + 2);
  cr_assert(run.signalled(SIGTERM, 5));
}

Test(epochs, a_fault_that_shows_only_on_lent_gpus_leaves_the_job_its_own) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {1, 2}, {3, 0}); });
  run.tick(run.now + 2);
  run.event([&] { run.machine.hello(run.now, {1, 2}, "host", 1); });
  for (const int local : {0, 1, 3})
    run.event([&] { run.machine.exited(run.now, {1, local}, {0, SIGKILL}); });
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.workers, 2u);
  cr_assert_not(run.code.has_value());
  cr_assert_not(run.no_growth().empty());
  // What is offered meanwhile is refused with the reason, and after a while accepted again.
  Grow grow;
  grow.offers.resize(1);
  run.event([&] { run.machine.grow(run.now, grow); });
  cr_assert_eq(std::get<GrowDone>(run.told.back()).results.front().reason, run.no_growth());
  cr_assert_eq(run.allocations, 1);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.no_growth(), std::string());
  cr_assert_eq(std::get<Status>(run.told.back()).no_growth, std::string());
  run.grow(12, 2);
}

Test(epochs, too_many_losses_end_the_growing_and_not_the_run) {
  EpochMachine::Settings settings;
  settings.max_restarts = 1;
  Run run(settings);
  run.grown();
  run.event([&] { run.machine.exited(run.now, {1, 0}, {0, SIGKILL}); });
  run.leave(1, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.no_growth(), std::string());
  run.grow(12, 2);
  run.hello(2, 2);
  run.leave(0, 2);
  cr_assert_eq(run.starts, 4);
  run.event([&] { run.machine.exited(run.now, {2, 0}, {0, SIGKILL}); });
  run.leave(2, 2, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.no_growth(), std::string("2 restarts within 600 s"));
}

Test(epochs, who_did_not_leave_in_time_is_not_grown_again) {
  Run run;
  run.grow(9, 4);
  run.hello(1, 4);
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGKILL, 2));
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.no_growth(),
               std::string("workers did not leave within 30 s of the restart signal"));
  run.tick(run.now + 1e6);
  cr_assert_not(run.no_growth().empty());
}

Test(epochs, who_was_still_starting_when_asked_to_leave_may_be_grown_again) {
  Run run;
  run.grown();
  run.deaf = true;
  run.shrink(9, 60);
  run.leave(1, 4);
  run.leave(0, 2);
  run.grow(12, 4);
  run.hello(2, 4);
  run.listen();
  run.leave(0, 2);
  cr_assert_eq(run.starts, 4);
  run.signals.clear();
  // None of the six has come up when one of them is reclaimed, and 30 s later only one has.
  run.shrink(12, 60);
  run.tick(run.now + 20);
  run.event([&] { run.machine.listens(run.now, {0, 0}); });
  run.tick(run.now + 10);
  cr_assert(run.signalled(SIGKILL, 6));
  run.leave(2, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.starts, 5);
  run.listen();
  cr_assert_eq(run.no_growth(), std::string());
}

Test(epochs, a_shorter_deadline_than_the_grace_is_not_the_program_s_fault) {
  Run run;
  run.grown();
  run.shrink(9, 5);
  run.tick(run.now + 3);
  cr_assert(run.signalled(SIGKILL, 6));
  cr_assert_eq(run.no_growth(), std::string());
}

Test(epochs, a_worker_that_dies_of_the_signal_ends_its_siblings) {
  Run run;
  run.grown();
  run.shrink(9, 60);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGUSR1}); });
  cr_assert_float_eq(*run.machine.deadline(), run.now + 1, 1e-9);
  run.tick(run.now + 1);
  cr_assert(run.signalled(SIGKILL, 5));
}

Test(epochs, term_ends_the_run_with_its_companions) {
  Run run;
  run.grown();
  run.event([&] { run.machine.signalled(run.now, SIGTERM); });
  cr_assert(run.signalled(SIGTERM, 6));
  run.leave(1, 4, {0, SIGTERM});
  run.leave(0, 2, {0, SIGTERM});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGTERM);
  cr_assert_eq(run.releases, Jobs{9});
}

Test(epochs, other_signals_only_reach_the_workers) {
  Run run;
  run.event([&] { run.machine.signalled(run.now, SIGUSR2); });
  cr_assert(run.signalled(SIGUSR2, 2));
  cr_assert_eq(run.state(), JobState::active);
}

Test(epochs, a_basic_worker_s_shim_that_is_killed_ends_the_run) {
  Run run;
  run.event([&] { run.machine.lost(run.now, {0, 0}); });
  run.tick(run.now);
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 128 + SIGKILL);
}

Test(epochs, who_is_lost_before_the_first_program_may_be_launched_again) {
  EpochMachine::Settings settings;
  settings.job = job;
  settings.warm_timeout_s = 60;
  const auto lost_one = [&settings] {
    EpochMachine machine(settings,
                         {worker_node(0, job, "node1", 1), worker_node(1, job, "node2", 1)});
    machine.start(1);
    machine.hello(2, {0, 0}, "host", 1000);
    machine.lost(3, {0, 0});  // srun ends it, as node2's did not start
    for (const action::Any& one : machine.take())
      cr_assert_not(std::holds_alternative<action::Finish>(one));
    return machine;
  };
  EpochMachine machine = lost_one();
  cr_assert_not(machine.has_begun());
  machine.hello(8, {0, 0}, "host", 1000);
  machine.hello(8, {1, 0}, "host", 1000);
  cr_assert(machine.has_begun());
  cr_assert(std::holds_alternative<action::StartWorkers>(machine.take().front()));

  EpochMachine alone = lost_one();
  cr_assert_float_eq(*alone.deadline(), 63, 1e-9);
  alone.tick(63);
  const auto actions = alone.take();
  cr_assert_eq(std::get<action::Finish>(actions.back()).code, 128 + SIGKILL);
}

Test(epochs, an_srun_that_cannot_start_ends_the_run_with_its_code) {
  EpochMachine machine(
      [] {
        EpochMachine::Settings settings;
        settings.job = job;
        return settings;
      }(),
      {worker_node(0, job, "node1", 2)});
  machine.start(1);
  machine.step_ended(2, job, {2, 0});
  const auto actions = machine.take();
  cr_assert_eq(std::get<action::Finish>(actions.back()).code, 2);
}

Test(epochs, a_training_that_ends_while_gpus_are_asked_back_is_not_run_again) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 0}, {}); });
  run.shrink(9, 30);
  cr_assert(run.signals.empty(), "the others may end, too");
  for (int local = 0; local < 4; ++local)
    run.event([&] { run.machine.exited(run.now, {1, local}, {}); });
  cr_assert_eq(run.releases, Jobs{9}, "nothing runs there any more");
  run.event([&] { run.machine.exited(run.now, {0, 1}, {}); });
  cr_assert_eq(run.code.value_or(-1), 0);
  cr_assert_eq(run.starts, 2);
}

Test(epochs, who_is_ended_on_gpus_that_go_back_while_others_end_by_themselves_fails_nothing) {
  const Exit by_term{0, SIGTERM}, by_kill{0, SIGKILL}, after_term{1, 0};
  const std::optional<Exit> shim_lost;
  for (const auto& how :
       {shim_lost, std::optional(by_term), std::optional(by_kill), std::optional(after_term)}) {
    for (const bool is_last : {true, false}) {
      Run run;
      run.grown();
      for (int local = 0; local < (is_last ? 2 : 1); ++local) {
        run.event([&] { run.machine.exited(run.now, {0, local}, {}); });
        run.event([&] { run.machine.hello(run.now, {0, local}, "host", 3000); });
      }
      run.event([&] { run.machine.notice(run.now, {1, 0}, SIGTERM); });
      cr_assert(run.signals.empty());
      for (int local = 0; local < 4; ++local)
        run.event([&] {
          if (how) run.machine.exited(run.now, {1, local}, *how);
          else run.machine.lost(run.now, {1, local});
        });
      cr_assert_eq(run.releases, Jobs{9});
      if (!is_last) cr_assert(run.signalled(SIGUSR1, 4), "who is left, and its other three");
      if (!is_last) run.leave(0, 2);
      cr_assert_not(run.code.has_value(), "it says nothing of the training");
      cr_assert_eq(run.starts, 3, "which has not ended on all of its GPUs");
      cr_assert(run.has_said("before the training's end"));
      cr_assert_eq(run.workers, 2u);
      for (int local = 0; local < 2; ++local)
        run.event([&] { run.machine.exited(run.now, {0, local}, {}); });
      cr_assert_eq(run.code.value_or(-1), 0);
    }
  }
}

Test(epochs, who_left_by_slurms_signal_before_it_was_told_ends_no_training) {
  Run run;
  run.grown();
  for (int local = 0; local < 4; ++local)
    run.event([&] { run.machine.exited(run.now, {1, local}, {}); });
  cr_assert(run.signals.empty());
  run.event([&] { run.machine.notice(run.now, {1, 0}, SIGUSR1); });
  cr_assert(run.signalled(SIGUSR1, 2));
  cr_assert_eq(run.releases, Jobs{9});
  run.leave(0, 2);
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());
}

Test(epochs, who_trains_on_though_all_that_was_lent_has_gone_is_asked_to_leave_in_the_end) {
  for (const bool basic_ended : {false, true}) {
    Run run;
    run.grown();
    if (basic_ended) run.event([&] { run.machine.exited(run.now, {0, 0}, {}); });
    for (int local = 0; local < 4; ++local)
      run.event([&] { run.machine.exited(run.now, {1, local}, {}); });
    if (basic_ended) run.event([&] { run.machine.notice(run.now, {1, 0}, SIGUSR1); });
    else run.shrink(9, 30);
    cr_assert_eq(run.releases, Jobs{9});
    cr_assert(run.signals.empty(), "the training may end");
    const double asks = *run.machine.deadline();
    cr_assert_leq(asks, run.now + 15);
    run.tick(asks);
    cr_assert(run.signalled(SIGUSR1, basic_ended ? 1 : 2));
  }
}

Test(epochs, who_trains_on_when_others_have_ended_is_asked_to_leave_in_time_for_it) {
  Run run;
  run.grown();
  run.event([&] { run.machine.exited(run.now, {0, 0}, {}); });
  run.event([&] { run.machine.hello(run.now, {0, 0}, "host", 1); });
  run.shrink(9, 30);
  const double by = run.now + 28;
  cr_assert_float_eq(*run.machine.deadline(), by - 15, 1e-9);
  run.tick(by - 15);
  cr_assert(run.signalled(SIGUSR1, 5));
  run.leave(1, 4);
  cr_assert_eq(run.releases, Jobs{9});
  run.leave(0, 2);
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());

  Run late;
  late.grown();
  late.event([&] { late.machine.exited(late.now, {0, 0}, {}); });
  late.shrink(9, 10);
  cr_assert(late.signalled(SIGUSR1, 5), "8 s are just enough to leave");
}
