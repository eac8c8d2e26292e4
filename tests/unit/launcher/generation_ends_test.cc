// SPDX-License-Identifier: GPL-2.0-or-later
// How a run comes to its end, and what does not end it.
#include "launcher/generation_run.h"

using namespace generation_run;

Test(generations, term_ends_the_run_with_its_companions) {
  Run run;
  run.grown();
  run.handle(event::Signalled{SIGTERM});
  cr_assert(run.signalled(SIGTERM, 6));
  run.leave(1, 4, {0, SIGTERM});
  run.leave(0, 2, {0, SIGTERM});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGTERM);
  cr_assert_eq(run.releases, Jobs{9});
}

Test(generations, a_run_ended_between_two_generations_has_not_ended_well) {
  for (const bool by_slurm : {true, false}) {
    Run run;
    run.grow(9, 4);
    run.hello(1, 4);
    cr_assert(run.signalled(SIGUSR1, 2));
    run.event([&] {
      if (by_slurm) run.machine.handle(run.now, event::Notice{{0, 0}, SIGTERM});
      else run.machine.handle(run.now, event::Signalled{SIGTERM});
    });
    for (int local = 0; local < 2; ++local) run.handle(event::Exited{{0, local}, {}});
    cr_assert_eq(run.code.value_or(-1), 128 + SIGTERM);
  }
}

Test(generations, who_ends_is_offered_nothing_from_then_on_and_gives_back_what_it_does_not_use) {
  for (const bool by_slurm : {true, false}) {
    Run run;
    run.grown();
    run.grow(10, 2);
    cr_assert_eq(run.no_growth(), std::string());
    run.told.clear();
    run.event([&] {
      if (by_slurm) run.machine.handle(run.now, event::Notice{{0, 0}, SIGTERM});
      else run.machine.handle(run.now, event::Signalled{SIGTERM});
    });
    const auto said = std::find_if(run.told.begin(), run.told.end(), [](const Message& each) {
      const auto* status = std::get_if<Status>(&each);
      return status != nullptr && status->no_growth == "the job is ending";
    });
    cr_assert_neq(said, run.told.end());
    cr_assert_eq(run.releases, Jobs{10}, "it is of no use any more");
    run.tick(run.now + 20);
    cr_assert_eq(run.no_growth(), "the job is ending");
    run.leave(1, 4, {0, SIGTERM});
    run.leave(0, 2, {0, SIGTERM});
    cr_assert_eq(run.code.value_or(-1), 128 + SIGTERM);
  }
}

Test(generations, gpus_that_go_back_as_the_run_ends_take_no_time_from_its_own_workers) {
  Run run;
  run.grown();
  run.handle(event::Notice{{0, 0}, SIGTERM});
  run.signals.clear();
  run.shrink(9, 10);
  run.tick(*run.machine.deadline());
  cr_assert(run.signalled(SIGKILL, 4));
  for (const auto& [worker, signal] : run.signals) cr_assert_eq(worker.node, 1);
  run.leave(1, 4, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{9});
  run.leave(0, 2);
  cr_assert_eq(run.code.value_or(-1), 0, "it has had time for its last checkpoint");
}

Test(generations, gpus_lent_as_the_training_ends_go_back) {
  Run run;
  run.leave(0, 1);
  run.grow(9, 4);
  run.hello(1, 4);
  cr_assert_neq(run.no_growth().find("have ended"), std::string::npos);
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.releases, Jobs{9});
}

Test(generations, a_worker_of_its_own_that_does_not_come_back_ends_the_run_and_is_named) {
  Run run;
  run.grown();
  run.handle(event::Lost{{1, 0}});
  run.leave(0, 1, {0, SIGKILL});
  run.handle(event::Exited{{0, 1}, {0, SIGKILL}});
  run.leave(1, 4, {0, SIGKILL});
  run.tick(run.now + 61);
  cr_assert_eq(run.code.value_or(-1), 1);
  cr_assert(run.has_said("has not come back"));
}

Test(generations, a_training_that_ends_while_gpus_are_asked_back_is_not_run_again) {
  Run run;
  run.grown();
  run.handle(event::Exited{{0, 0}, {}});
  run.shrink(9, 30);
  cr_assert(run.signals.empty(), "the others may end, too");
  for (int local = 0; local < 4; ++local) run.handle(event::Exited{{1, local}, {}});
  cr_assert_eq(run.releases, Jobs{9}, "nothing runs there any more");
  run.handle(event::Exited{{0, 1}, {}});
  cr_assert_eq(run.code.value_or(-1), 0);
  cr_assert_eq(run.starts, 2);
}

Test(generations, a_worker_ended_on_returning_gpus_while_others_end_fails_nothing) {
  const Exit by_term{0, SIGTERM}, by_kill{0, SIGKILL}, after_term{1, 0};
  const std::optional<Exit> shim_lost;
  for (const auto& how :
       {shim_lost, std::optional(by_term), std::optional(by_kill), std::optional(after_term)}) {
    for (const bool is_last : {true, false}) {
      Run run;
      run.grown();
      for (int local = 0; local < (is_last ? 2 : 1); ++local) {
        run.handle(event::Exited{{0, local}, {}});
        run.handle(event::Hello{{0, local}, "host", 3000});
      }
      run.handle(event::Notice{{1, 0}, SIGTERM});
      cr_assert(run.signals.empty());
      for (int local = 0; local < 4; ++local)
        run.event([&] {
          if (how) run.machine.handle(run.now, event::Exited{{1, local}, *how});
          else run.machine.handle(run.now, event::Lost{{1, local}});
        });
      cr_assert_eq(run.releases, Jobs{9});
      if (!is_last) cr_assert(run.signalled(SIGUSR1, 4), "who is left, and its other three");
      if (!is_last) run.leave(0, 2);
      cr_assert_not(run.code.has_value(), "it says nothing of the training");
      cr_assert_eq(run.starts, 3, "which has not ended on all of its GPUs");
      cr_assert(run.has_said("before the training's end"));
      cr_assert_eq(run.workers, 2u);
      for (int local = 0; local < 2; ++local) run.handle(event::Exited{{0, local}, {}});
      cr_assert_eq(run.code.value_or(-1), 0);
    }
  }
}

Test(generations, a_worker_that_left_by_slurms_signal_early_does_not_end_training) {
  Run run;
  run.grown();
  for (int local = 0; local < 4; ++local) run.handle(event::Exited{{1, local}, {}});
  cr_assert(run.signals.empty());
  run.handle(event::Notice{{1, 0}, SIGUSR1});
  cr_assert(run.signalled(SIGUSR1, 2));
  cr_assert_eq(run.releases, Jobs{9});
  run.leave(0, 2);
  cr_assert_eq(run.starts, 3);
  cr_assert_not(run.code.has_value());
}

Test(generations,
     workers_that_train_on_after_all_lent_gpus_have_gone_are_asked_to_leave_in_the_end) {
  for (const bool basic_ended : {false, true}) {
    Run run;
    run.grown();
    if (basic_ended) run.handle(event::Exited{{0, 0}, {}});
    for (int local = 0; local < 4; ++local) run.handle(event::Exited{{1, local}, {}});
    if (basic_ended) run.handle(event::Notice{{1, 0}, SIGUSR1});
    else run.shrink(9, 30);
    cr_assert_eq(run.releases, Jobs{9});
    cr_assert(run.signals.empty(), "the training may end");
    const double asks = *run.machine.deadline();
    cr_assert_leq(asks, run.now + 15);
    run.tick(asks);
    cr_assert(run.signalled(SIGUSR1, basic_ended ? 1 : 2));
  }
}

Test(generations, workers_that_train_on_when_others_have_ended_are_asked_to_leave_in_time) {
  Run run;
  run.grown();
  run.handle(event::Exited{{0, 0}, {}});
  run.handle(event::Hello{{0, 0}, "host", 1});
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
  late.handle(event::Exited{{0, 0}, {}});
  late.shrink(9, 10);
  cr_assert(late.signalled(SIGUSR1, 5), "8 s are just enough to leave");
}
