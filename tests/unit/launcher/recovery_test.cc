// SPDX-License-Identifier: GPL-2.0-or-later
// The epoch machine: programs that fail and are started again.
#include <csignal>

#include "launcher/epoch_run.h"

using namespace epoch_run;

namespace {

EpochMachine::Settings recovering(double seconds) {
  EpochMachine::Settings settings;
  settings.recover_s = seconds;
  return settings;
}

/// A worker of the job's own fails, and the others are killed; all shims come back.
void fail_once(Run& run, int lent) {
  run.event([&] { run.machine.exited(run.now, {0, 0}, {3, 0}); });
  run.event([&] { run.machine.hello(run.now, {0, 0}, "host", 3000); });
  run.tick(*run.machine.deadline());
  if (run.state() != JobState::draining) return;
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGKILL}); });
  run.event([&] { run.machine.hello(run.now, {0, 1}, "host", 3001); });
  if (lent > 0) run.leave(1, lent, {0, SIGKILL});
}

}  // namespace

Test(recovery, a_program_that_fails_is_started_again_over_all_that_the_job_has) {
  Run run(recovering(100));
  run.grown();
  fail_once(run, 4);
  cr_assert(run.signalled(SIGKILL, 5));
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.workers, 6u);
  cr_assert(run.releases.empty());
  cr_assert(run.has_said("the program failed with 3 over 6 workers: it is started again"));
  cr_assert_eq(run.machine.status().state, JobState::active);
}

Test(recovery, who_fails_again_too_soon_gives_back_what_was_lent) {
  Run run(recovering(100));
  run.grown();
  fail_once(run, 4);
  run.now += 90;
  fail_once(run, 4);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.starts, 4);
  cr_assert_eq(run.workers, 2u);
  cr_assert_not(run.code.has_value());
}

Test(recovery, without_lent_gpus_it_ends_with_its_code_when_it_fails_again_too_soon) {
  Run run(recovering(100));
  fail_once(run, 0);
  cr_assert_eq(run.starts, 2);
  run.now += 200;
  fail_once(run, 0);
  cr_assert_eq(run.starts, 3, "it had run for long enough");
  run.now += 50;
  fail_once(run, 0);
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(recovery, is_not_tried_more_often_than_other_restarts) {
  EpochMachine::Settings settings = recovering(1);
  settings.max_restarts = 1;
  Run run(settings);
  fail_once(run, 0);
  cr_assert_eq(run.starts, 2);
  run.now += 50;
  fail_once(run, 0);
  cr_assert_eq(run.starts, 2);
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(recovery, needs_the_shims_of_all_workers) {
  Run run(recovering(100));
  run.event([&] { run.machine.lost(run.now, {0, 0}); });
  run.tick(*run.machine.deadline());
  cr_assert_neq(run.state(), JobState::draining);
  run.event([&] { run.machine.exited(run.now, {0, 1}, {0, SIGTERM}); });
  cr_assert_eq(run.code.value_or(-1), 128 + SIGKILL);
  cr_assert_eq(run.starts, 1);
}
