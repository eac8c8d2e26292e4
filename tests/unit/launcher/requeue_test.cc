// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: a job that Slurm is about to requeue.
#include <csignal>

#include "launcher/generation_run.h"

using namespace generation_run;

namespace {

void order(Run& run, bool called_off = false, const char* why = "the job moves to h100",
           std::int64_t id = 1) {
  run.handle(control::Requeue{id, 60, called_off, why});
}
control::Status last_status(const Run& run) {
  control::Status last;
  for (const Message& each : run.told)
    if (const auto* status = std::get_if<control::Status>(&each)) last = *status;
  return last;
}

}  // namespace

Test(requeue, the_workers_leave_and_nothing_starts_until_it_is_over) {
  Run run;
  order(run);
  cr_assert(run.signalled(SIGUSR1, 2));
  cr_assert_not(last_status(run).has_left);
  run.leave(0, 2);
  cr_assert_eq(run.starts, 1, "it waits for Slurm");
  cr_assert(last_status(run).has_left);
  run.tick(run.now + 59);
  cr_assert_eq(run.starts, 1);
  cr_assert_not(run.code);
}

Test(requeue, a_job_that_is_not_requeued_trains_on_where_it_was) {
  Run late;
  order(late);
  late.leave(0, 2);
  late.tick(late.now + 60);
  cr_assert_eq(late.starts, 2);
  cr_assert_eq(late.workers, 2u);
  cr_assert_not(late.machine.status().has_left);
  cr_assert_eq(late.machine.status().not_requeued, std::string("the job was not requeued in time"));
  Run called_off;
  order(called_off);
  called_off.leave(0, 2);
  order(called_off, true, "the h100 are needed by others");
  cr_assert_eq(called_off.starts, 2);
  cr_assert(called_off.has_said("the h100 are needed by others"));
  Run while_leaving;
  order(while_leaving);
  order(while_leaving, true);
  while_leaving.leave(0, 2);
  cr_assert_eq(while_leaving.starts, 2);
  cr_assert_not(while_leaving.machine.status().has_left);
}

Test(requeue, a_program_that_would_not_save_is_left_alone) {
  Run deaf;
  deaf.grow(9, 4);
  deaf.deaf = true;
  deaf.hello(1, 4);
  deaf.leave(0, 2);
  deaf.signals.clear();
  order(deaf);
  cr_assert(deaf.signals.empty());
  cr_assert_neq(last_status(deaf).not_requeued, std::string());
  Run lent;
  lent.grown();
  order(lent);
  cr_assert(lent.signals.empty());
  cr_assert_eq(last_status(lent).not_requeued, std::string("it still has lent GPUs"));
}

Test(requeue, workers_that_do_not_leave_train_on) {
  Run run;
  order(run);
  run.tick(run.now + 31);
  cr_assert_eq(run.starts, 1);
  cr_assert_eq(last_status(run).not_requeued, std::string("its workers did not leave"));
  cr_assert_eq(run.state(), JobState::active);
  order(run);
  cr_assert_eq(last_status(run).not_requeued, std::string(), "a later order starts anew");
}

Test(requeue, a_later_order_takes_the_place_of_an_earlier_one) {
  for (const bool has_left : {false, true}) {
    Run run;
    order(run);
    if (has_left) run.leave(0, 2);
    run.now += 30;
    order(run, false, "the job moves to h100", 2);
    cr_assert_eq(last_status(run).requeue_order, 2);
    cr_assert_eq(last_status(run).not_requeued, std::string());
    order(run, true, "the h100 are needed by others", 1);
    if (!has_left) run.leave(0, 2);
    cr_assert(last_status(run).has_left, "the one that was called off is over");
    run.tick(run.now + 59);
    cr_assert_eq(run.starts, 1);
    order(run, true, "the h100 are needed by others", 2);
    cr_assert_eq(run.starts, 2);
  }
}

Test(requeue, a_refusal_names_its_order) {
  Run lent;
  lent.grown();
  order(lent, false, "the job moves to h100", 8);
  cr_assert_eq(last_status(lent).requeue_order, 8);
  cr_assert_neq(last_status(lent).not_requeued, std::string());
}

Test(requeue, an_error_while_leaving_is_one_of_the_program) {
  Run run;
  order(run);
  run.handle(event::Exited{{0, 0}, {1, 0}});
  run.handle(event::Exited{{0, 1}, {1, 0}});
  run.tick(run.now + 10);
  cr_assert_eq(run.code.value_or(-1), 1);
}

Test(requeue, slurm_ends_the_run_with_an_error_for_the_script) {
  Run run;
  order(run);
  run.leave(0, 2);
  run.handle(event::Notice{{0, 0}, SIGTERM});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGTERM);
}
