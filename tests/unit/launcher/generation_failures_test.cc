// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: errors, losses, signals, and workers that do not leave.
#include <csignal>

#include "launcher/generation_run.h"

using namespace generation_run;

Test(generations, an_error_exit_without_companions_ends_the_run_with_it) {
  Run run;
  run.handle(event::Exited{{0, 0}, {3, 0}});
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGTERM, 1));
  run.handle(event::Exited{{0, 1}, {0, SIGTERM}});
  cr_assert_eq(run.code.value_or(-1), 3);
  cr_assert_eq(run.starts, 1);
}

Test(generations, a_death_by_signal_is_128_and_its_number) {
  Run run;
  run.handle(event::Exited{{0, 0}, {0, SIGSEGV}});
  run.tick(run.now);
  run.handle(event::Exited{{0, 1}, {0, SIGTERM}});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGSEGV);
}

Test(generations, with_kill_on_bad_exit_0_the_others_may_finish) {
  GenerationMachine::Settings settings;
  settings.kill_on_bad_exit = false;
  Run run(settings);
  run.handle(event::Exited{{0, 0}, {3, 0}});
  cr_assert(run.signals.empty());
  cr_assert_not(run.code.has_value());
  run.handle(event::Exited{{0, 1}, {}});
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(generations, workers_past_the_deadline_are_killed) {
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

Test(generations, a_warning_from_slurm_is_a_shrink) {
  Run run;
  run.grown();
  run.handle(event::Notice{{1, 0}, SIGTERM});
  run.handle(event::Notice{{1, 1}, SIGTERM});
  cr_assert(run.signalled(SIGUSR1, 6));
  run.leave(1, 4, {143, 0});
  run.leave(0, 2);
  cr_assert_eq(run.workers, 2u);
  cr_assert_not(run.code.has_value());
}

Test(generations, a_lost_companion_means_starting_again_without_it) {
  Run run;
  run.grown();
  for (int local = 0; local < 4; ++local) run.handle(event::Lost{{1, local}});
  cr_assert(run.signalled(SIGKILL, 5));  // one of the six was lost when the first news came
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 3);
}

Test(generations, gpus_whose_workers_are_lost_while_they_go_back_are_released) {
  for (const bool last : {true, false}) {
    Run run;
    run.grown();
    run.shrink(9, 30);
    if (last) run.leave(0, 2);
    for (int local = 0; local < 4; ++local) run.handle(event::Lost{{1, local}});
    cr_assert_eq(run.releases, Jobs{9}, "the others' leave is not waited for");
    if (!last) run.leave(0, 2);
    cr_assert_eq(run.releases, Jobs{9});
    cr_assert_eq(run.workers, 2u);
    cr_assert_not(run.code.has_value());
  }
}

Test(generations, an_error_is_forgiven_when_a_companion_s_loss_explains_it) {
  Run run;
  run.grown();
  run.handle(event::Exited{{0, 1}, {1, 0}});  // its peer died
  run.now += 1;
  run.handle(event::StepEnded{9, {0, SIGKILL}});
  run.leave(1, 4, {0, SIGKILL});
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}});
  run.hello(0, 2);
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());
}

Test(generations, whichever_of_several_errors_is_heard_first_one_on_lent_gpus_decides) {
  Run run;
  run.grown();
  run.handle(event::Exited{{0, 1}, {0, SIGKILL}});  // its peer's end
  run.handle(event::Exited{{1, 0}, {0, SIGSEGV}});
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGKILL, 4) && run.signalled(SIGTERM, 0), "the run goes on");
}

Test(generations,
     a_lent_worker_s_error_counts_as_that_though_its_gpus_are_back_before_it_is_decided) {
  Run run;
  run.grown();
  for (int local = 0; local < 4; ++local) run.handle(event::Exited{{1, local}, {1, 0}});
  run.leave(0, 2, {1, 0});
  run.shrink(9, 30);
  cr_assert_eq(run.releases, Jobs{9});
  if (run.machine.deadline()) run.tick(*run.machine.deadline());
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.starts, 3);
}

Test(generations, an_error_while_lent_gpus_take_part_means_going_on_without_them) {
  Run run;
  run.grown();
  run.now += 10'000;  // of a lent node that has failed nothing may be heard for a minute
  run.handle(event::Exited{{0, 1}, {1, 0}});
  run.tick(run.now + 2);
  cr_assert(run.signalled(SIGKILL, 5));
  run.handle(event::Hello{{0, 1}, "host", 1});
  run.leave(1, 4, {0, SIGKILL});
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}});
  run.handle(event::Hello{{0, 0}, "host", 1});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.no_growth(), std::string("the program failed with 1 over 6 workers"));
  cr_assert(run.has_said("the program failed with 1 over 6 workers: on with the job's own GPUs"));
  // The basic run's own failure ends it.
  run.handle(event::Exited{{0, 1}, {1, 0}});
  run.tick(run.now);
  run.handle(event::Exited{{0, 0}, {0, SIGTERM}});
  cr_assert_eq(run.code.value_or(-1), 1);
}

Test(generations, a_basic_worker_that_is_killed_ends_the_run_also_with_companions) {
  Run run;
  run.grown();
  run.handle(event::Exited{{0, 1}, {0, SIGKILL}});
  run.tick(run.now + 2);
  cr_assert(run.signalled(SIGTERM, 5));
}

Test(generations, a_fault_that_shows_only_on_lent_gpus_leaves_the_job_its_own) {
  Run run;
  run.grown();
  run.handle(event::Exited{{1, 2}, {3, 0}});
  run.tick(run.now + 2);
  run.handle(event::Hello{{1, 2}, "host", 1});
  for (const int local : {0, 1, 3}) run.handle(event::Exited{{1, local}, {0, SIGKILL}});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.workers, 2u);
  cr_assert_not(run.code.has_value());
  cr_assert_not(run.no_growth().empty());
  // Offers are refused meanwhile with the reason, and after a while accepted again.
  Grow grow;
  grow.offers.resize(1);
  run.handle(grow);
  cr_assert_eq(std::get<GrowDone>(run.told.back()).results.front().reason, run.no_growth());
  cr_assert_eq(run.allocations, 1);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.no_growth(), std::string());
  cr_assert_eq(std::get<Status>(run.told.back()).no_growth, std::string());
  run.grow(12, 2);
}

Test(generations, too_many_losses_end_the_growing_and_not_the_run) {
  GenerationMachine::Settings settings;
  settings.max_restarts = 1;
  Run run(settings);
  run.grown();
  run.handle(event::Exited{{1, 0}, {0, SIGKILL}});
  run.leave(1, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.no_growth(), std::string());
  run.grow(12, 2);
  run.hello(2, 2);
  run.leave(0, 2);
  cr_assert_eq(run.starts, 4);
  run.handle(event::Exited{{2, 0}, {0, SIGKILL}});
  run.leave(2, 2, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.workers, 2u);
  cr_assert_eq(run.no_growth(), std::string("2 restarts within 600 s"));
}

Test(generations, a_job_that_did_not_leave_in_time_is_not_grown_again) {
  Run run;
  run.grown();
  run.shrink(9, 60);
  run.tick(run.now + 30);
  cr_assert(run.signalled(SIGKILL, 6));
  run.leave(1, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.no_growth(),
               std::string("workers did not leave within 30 s of the restart signal"));
  run.tick(run.now + 1e6);
  cr_assert_not(run.no_growth().empty());
}

Test(generations, a_job_still_starting_when_asked_to_leave_may_be_grown_again) {
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
  run.handle(event::Listens{{0, 0}});
  run.tick(run.now + 10);
  cr_assert(run.signalled(SIGKILL, 6));
  run.leave(2, 4, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.starts, 5);
  run.listen();
  cr_assert_eq(run.no_growth(), std::string());
}

Test(generations, a_shorter_deadline_than_the_grace_is_not_the_program_s_fault) {
  Run run;
  run.grown();
  run.shrink(9, 5);
  run.tick(run.now + 3);
  cr_assert(run.signalled(SIGKILL, 6));
  cr_assert_eq(run.no_growth(), std::string());
}

Test(generations, a_worker_that_dies_of_the_signal_ends_its_siblings) {
  Run run;
  run.grown();
  run.shrink(9, 60);
  run.handle(event::Exited{{0, 0}, {0, SIGUSR1}});
  cr_assert_float_eq(*run.machine.deadline(), run.now + 1, 1e-9);
  run.tick(run.now + 1);
  cr_assert(run.signalled(SIGKILL, 5));
}

Test(generations, failures_of_two_lent_nodes_are_not_the_runs_own) {
  Run run;
  run.grow(9, 1);
  run.grow(10, 1);
  run.hello(1, 1);
  run.hello(2, 1);
  run.leave(0, 2);
  cr_assert_eq(run.workers, 4u);
  run.handle(event::Exited{{1, 0}, {0, SIGKILL}});
  run.handle(event::Exited{{2, 0}, {0, SIGKILL}});  // and no hello follows
  run.leave(0, 2, {0, SIGKILL});
  run.tick(run.now + 61);
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.workers, 2u);
}

Test(generations, other_signals_only_reach_the_workers) {
  Run run;
  run.handle(event::Signalled{SIGUSR2});
  cr_assert(run.signalled(SIGUSR2, 2));
  cr_assert_eq(run.state(), JobState::active);
}

Test(generations, a_basic_worker_s_shim_that_is_killed_ends_the_run) {
  Run run;
  run.handle(event::Lost{{0, 0}});
  run.tick(run.now);
  run.handle(event::Exited{{0, 1}, {0, SIGTERM}});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGKILL);
}

Test(generations, workers_lost_before_the_first_program_may_be_launched_again) {
  GenerationMachine::Settings settings;
  settings.job = job;
  settings.warm_timeout_s = 60;
  const std::vector<WorkerNode> nodes = {worker_node(0, job, "node1", 1),
                                         worker_node(1, job, "node2", 1)};
  const auto lose_one = [](GenerationMachine& machine) {
    machine.start(1);
    machine.handle(2, event::Hello{{0, 0}, "host", 1000});
    machine.handle(3, event::Lost{{0, 0}});  // srun ends it, as node2's did not start
    for (const action::Any& one : machine.take())
      cr_assert_not(std::holds_alternative<action::Finish>(one));
  };
  GenerationMachine machine(settings, nodes);
  lose_one(machine);
  cr_assert_not(machine.has_begun());
  machine.handle(8, event::Hello{{0, 0}, "host", 1000});
  machine.handle(8, event::Hello{{1, 0}, "host", 1000});
  cr_assert(machine.has_begun());
  cr_assert(std::holds_alternative<action::StartWorkers>(machine.take().front()));

  GenerationMachine alone(settings, nodes);
  lose_one(alone);
  cr_assert_float_eq(*alone.deadline(), 63, 1e-9);
  alone.tick(63);
  const auto actions = alone.take();
  cr_assert_eq(std::get<action::Finish>(actions.back()).code, 128 + SIGKILL);
}

Test(generations, an_srun_that_cannot_start_ends_the_run_with_its_code) {
  GenerationMachine machine(
      [] {
        GenerationMachine::Settings settings;
        settings.job = job;
        return settings;
      }(),
      {worker_node(0, job, "node1", 2)});
  machine.start(1);
  machine.handle(2, event::StepEnded{job, {2, 0}});
  const auto actions = machine.take();
  cr_assert_eq(std::get<action::Finish>(actions.back()).code, 2);
}

namespace {

/// Returns the message that the controller gets when companion 9 has gone back.
control::Released released(Run& run) {
  run.handle(event::Released{9});
  const auto* told = std::get_if<Released>(&run.told.back());
  cr_assert_not_null(told);
  return *told;
}

}  // namespace

Test(generations, the_controller_hears_whether_a_companion_has_failed) {
  Run killed;
  killed.grown();
  killed.leave(1, 1, {0, SIGKILL});
  killed.leave(0, 2, {0, SIGKILL});
  for (int local = 1; local < 4; ++local) killed.handle(event::Exited{{1, local}, {0, SIGKILL}});
  const control::Released of_killed = released(killed);
  cr_assert(of_killed.failed && of_killed.started, "a worker was killed there");

  Run silent;
  silent.grow(9, 4);
  silent.tick(*silent.machine.deadline());
  const control::Released of_silent = released(silent);
  cr_assert(of_silent.failed && !of_silent.started, "its step did not come up");

  Run refused;
  refused.grow(9, 4);
  refused.handle(event::StepEnded{9, {1, 0}});
  const control::Released of_refused = released(refused);
  cr_assert(of_refused.failed && !of_refused.started, "srun started no worker there");

  Run fails;
  fails.grown();
  fails.handle(event::Exited{{1, 0}, {1, 0}});
  fails.tick(*fails.machine.deadline());
  fails.leave(0, 2, {0, SIGKILL});
  for (int local = 0; local < 4; ++local) fails.handle(event::Lost{{1, local}});
  cr_assert(released(fails).failed, "its program failed there");

  Run other;
  other.grown();
  other.handle(event::Exited{{0, 0}, {1, 0}});
  other.tick(*other.machine.deadline());
  other.leave(0, 2, {0, SIGKILL});
  other.leave(1, 4, {0, SIGKILL});
  cr_assert_not(released(other).failed, "a worker of the job's own failed");

  Run back;
  back.grown();
  back.shrink(9, 30);
  back.leave(1, 4, {0, SIGKILL});
  cr_assert_not(released(back).failed, "it was taken back");

  Run warned;
  warned.grown();
  warned.handle(event::Notice{{1, 0}, SIGTERM});
  warned.leave(1, 4, {0, SIGKILL});
  cr_assert_not(released(warned).failed, "Slurm ends it");
}

Test(generations, a_companion_whose_step_srun_made_otherwise_goes_back_without_blame) {
  Run run;
  run.grow(9, 4);
  run.handle(event::StepEnded{9, {1, 0}, "one task in place of four"});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert(run.has_said("one task in place of four"));
  run.handle(event::Released{9});
  cr_assert_not(released(run).failed, "its node is not at fault");
  cr_assert_eq(run.no_growth(), "one task in place of four");
  cr_assert_eq(run.starts, 1);
}
