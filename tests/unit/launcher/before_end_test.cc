// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: the workers leave before the job's time limit, or on Slurm's signal.
#include <csignal>

#include "launcher/generation_run.h"

using namespace generation_run;

namespace {

GenerationMachine::Settings before_end(double seconds) {
  GenerationMachine::Settings settings;
  settings.before_end_s = seconds;
  return settings;
}

}  // namespace

Test(before_end, workers_leave_in_time_and_the_run_ends_with_75) {
  Run run(before_end(100));
  run.handle(event::JobEnds{run.now + 1000});
  cr_assert_float_eq(*run.machine.deadline(), run.now + 900, 1e-9);
  run.tick(run.now + 899);
  cr_assert(run.signals.empty());
  run.tick(run.now + 1);
  cr_assert(run.signalled(SIGUSR1, 2));
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 75);
  cr_assert_eq(run.starts, 1);
}

Test(before_end, a_changed_limit_is_followed) {
  Run run(before_end(100));
  const double began = run.now;
  run.event([&] { run.machine.handle(began, event::JobEnds{began + 1000}); });
  run.event([&] { run.machine.handle(began + 800, event::JobEnds{began + 5000}); });
  run.tick(began + 950);
  cr_assert(run.signals.empty());
  run.handle(event::JobEnds{began + 1010});
  run.tick(run.now);
  cr_assert(run.signalled(SIGUSR1, 2));

  Run unlimited(before_end(100));
  unlimited.handle(event::JobEnds{std::nullopt});
  unlimited.tick(unlimited.now + 1e6);
  cr_assert(unlimited.signals.empty());
}

Test(before_end, a_run_has_at_least_half_of_its_time) {
  Run run(before_end(3600));
  run.handle(event::JobEnds{run.now + 600});
  cr_assert(run.has_said("its workers leave 300 s before"));
  run.tick(run.now + 299);
  cr_assert(run.signals.empty());
  run.tick(run.now + 1);
  cr_assert(run.signalled(SIGUSR1, 2));
}

Test(before_end, workers_that_do_not_leave_are_killed_just_before_the_end) {
  Run run(before_end(100));
  run.handle(event::JobEnds{run.now + 1000});
  run.tick(run.now + 900);
  run.tick(run.now + 94);
  cr_assert(run.signalled(SIGKILL, 0));
  run.tick(run.now + 1);
  cr_assert(run.signalled(SIGKILL, 2));
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.code.value_or(-1), 75, "the next run resumes from the last checkpoint");
}

Test(before_end, lent_gpus_are_released) {
  Run run(before_end(100));
  run.grown();
  run.handle(event::JobEnds{run.now + 1000});
  run.tick(run.now + 900);
  cr_assert(run.signalled(SIGUSR1, 6));
  run.leave(1, 4);
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 75);
  cr_assert_eq(run.releases, Jobs{9});
}

Test(before_end, slurm_s_own_signal_is_such_an_end) {
  for (const bool to_swellrun : {false, true}) {
    Run run(before_end(0));
    run.grown();
    run.event([&] {
      if (to_swellrun) run.machine.handle(run.now, event::Signalled{SIGUSR1});
      else run.machine.handle(run.now, event::Notice{{0, 0}, SIGUSR1});
    });
    cr_assert(run.signalled(SIGUSR1, to_swellrun ? 6 : 4), "who has not had it from Slurm");
    // Slurm's TERM at the time limit changes nothing.
    run.handle(event::Signalled{SIGTERM});
    run.leave(1, 4);
    run.leave(0, 2);
    cr_assert_eq(run.code.value_or(-1), 75);
  }
}

Test(before_end, a_resize_that_is_under_way_becomes_the_end) {
  Run run(before_end(100));
  run.grow(9, 4);
  run.hello(1, 4);
  cr_assert(run.signalled(SIGUSR1, 2));
  run.handle(event::JobEnds{run.now + 40});
  run.tick(run.now + 20);
  cr_assert(run.signalled(SIGUSR1, 2), "they have been asked");
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 75);
  cr_assert_eq(run.starts, 1);
}

Test(before_end, a_user_who_ends_the_run_has_its_own_code) {
  Run run(before_end(100));
  run.handle(event::JobEnds{run.now + 40});
  run.tick(run.now + 20);
  run.handle(event::Signalled{SIGINT});
  run.leave(0, 2, {0, SIGINT});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGINT);
}

Test(before_end, training_that_has_ended_by_its_leave_code_is_not_run_again) {
  for (const int code : {0, 3}) {
    GenerationMachine::Settings settings = before_end(100);
    settings.leave_code = 3;
    Run run(settings);
    run.handle(event::JobEnds{run.now + 40});
    run.tick(run.now + 20);
    run.leave(0, 2, {code, 0});
    cr_assert_eq(run.code.value_or(-1), code == 0 ? 0 : 75);
  }
}
