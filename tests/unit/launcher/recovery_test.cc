// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: programs that fail and are started again.
#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/generation_run.h"
#include "launcher/live_run.h"

using namespace generation_run;

namespace {

GenerationMachine::Settings recovering(double seconds) {
  GenerationMachine::Settings settings;
  settings.recover_s = seconds;
  return settings;
}

/// A worker of the job's own fails, and the others are killed; all shims come back.
void fail_once(Run& run, int lent) {
  run.handle(event::Exited{{0, 0}, {3, 0}});
  run.handle(event::Hello{{0, 0}, "host", 3000});
  run.tick(*run.machine.deadline());
  if (run.state() != JobState::draining) return;
  run.handle(event::Exited{{0, 1}, {0, SIGKILL}});
  run.handle(event::Hello{{0, 1}, "host", 3001});
  if (lent > 0) run.leave(1, lent, {0, SIGKILL});
}

/// Has the machine look whenever it asks to, until then.
template <typename R>
void run_until(R& run, double time) {
  for (int looks = 0; run.machine.deadline() && *run.machine.deadline() <= time; ++looks) {
    cr_assert_lt(looks, 100, "it asks for the same time again and again");
    run.tick(std::max(run.now, *run.machine.deadline()));
  }
  run.tick(time);
}

/// Four workers on lent GPUs and two of the job's own were started again, at `now`, and hang: they
/// never handle the signal.
struct Hanging : Run {
  explicit Hanging(double seconds) : Run(recovering(seconds)) {
    grown();
    deaf = true;
    fail_once(*this, 4);
    cr_assert_eq(starts, 3);
    cr_assert_eq(workers, 6u);
    signals.clear();
  }
};

/// One worker of the job's own and one on a lent GPU have trained live, and were started again.
struct LiveAgain : live_run::Run {
  explicit LiveAgain(double seconds) : live_run::Run(true, true, 0, seconds) {
    grown();
    handle(event::Exited{{0, 0}, {3, 0}, 1});
    handle(event::Hello{{0, 0}, "host", 1});
    tick(now + 2);
    handle(event::Exited{{1, 0}, {0, SIGKILL}, 1});
    handle(event::Hello{{1, 0}, "host", 2});
    cr_assert_eq(begin.generation, 2);
    signals.clear();
  }
};

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

Test(recovery, a_program_whose_workers_all_fail_at_once_is_started_again) {
  Run run(recovering(100));
  run.leave(0, 2, {3, 0});
  run.tick(run.now);
  cr_assert_eq(run.starts, 2);
  cr_assert_not(run.code.has_value());
}

Test(recovery, a_program_that_fails_again_too_soon_gives_back_lent_gpus) {
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
  run.handle(event::Exited{{0, 1}, {0, SIGTERM}});
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(recovery, is_not_tried_more_often_than_other_restarts) {
  GenerationMachine::Settings settings = recovering(1);
  settings.max_restarts = 1;
  Run run(settings);
  fail_once(run, 0);
  cr_assert_eq(run.starts, 2);
  run.now += 50;
  fail_once(run, 0);
  cr_assert_eq(run.starts, 2);
  run.handle(event::Exited{{0, 1}, {0, SIGTERM}});
  cr_assert_eq(run.code.value_or(-1), 3);
}

Test(recovery, needs_the_shims_of_all_workers) {
  Run run(recovering(100));
  run.handle(event::Lost{{0, 0}});
  run.tick(*run.machine.deadline());
  cr_assert_neq(run.state(), JobState::draining);
  run.handle(event::Exited{{0, 1}, {0, SIGTERM}});
  cr_assert_eq(run.code.value_or(-1), 128 + SIGKILL);
  cr_assert_eq(run.starts, 1);
}

Test(recovery, lent_gpus_wait_their_time_for_a_program_that_hangs_and_no_longer) {
  for (const double seconds : {0.5, 20., 100., 1000.}) {
    Hanging run(seconds);
    const double since = run.now;
    run_until(run, since + seconds - 0.1);
    cr_assert(run.signals.empty());
    cr_assert(run.releases.empty());
    run_until(run, since + seconds);
    cr_assert(run.signalled(SIGKILL, 6));
    cr_assert_eq(run.state(), JobState::draining);
    cr_assert(run.has_said("the program has not recovered within "));
    run.leave(1, 4, {0, SIGKILL});
    cr_assert_eq(run.releases, Jobs{9}, "its other workers are not waited for");
    run.leave(0, 2, {0, SIGKILL});
    cr_assert_eq(run.starts, 4);
    cr_assert_eq(run.workers, 2u);
    cr_assert_neq(run.no_growth(), std::string());
    run_until(run, run.now + 3000);
    cr_assert_eq(run.starts, 4, "what is the job's own may hang");
    cr_assert_not(run.code.has_value());
  }
}

Test(recovery, a_program_ready_in_time_keeps_lent_gpus) {
  Hanging run(100);
  for (const auto& [id, environment] : run.last_start.workers) {
    run.now += 16;
    run.handle(event::Listens{id});
  }
  run_until(run, run.now + 3000);
  cr_assert(run.signals.empty());
  cr_assert(run.releases.empty());
  cr_assert_eq(run.starts, 3);
}

Test(recovery, one_worker_that_is_not_ready_is_enough) {
  Hanging run(100);
  const double since = run.now;
  for (const auto& [id, environment] : run.last_start.workers)
    if (id.node == 0) run.handle(event::Listens{id});
  run_until(run, since + 100);
  cr_assert(run.signalled(SIGKILL, 6));
}

Test(recovery, a_program_on_the_job_s_own_gpus_may_take_its_time) {
  Run run(recovering(100));
  run.deaf = true;
  fail_once(run, 0);
  cr_assert_eq(run.starts, 2);
  run_until(run, run.now + 3000);
  cr_assert(run.signalled(SIGKILL, 1), "only when it was started again");
  cr_assert_eq(run.starts, 2);
  fail_once(run, 0);
  cr_assert_eq(run.starts, 3, "it had run for long enough");
}

Test(recovery, the_time_runs_from_the_failure_whatever_the_workers_do) {
  Run run(recovering(20));
  run.grown();
  run.handle(event::Exited{{0, 0}, {3, 0}});
  run.handle(event::Hello{{0, 0}, "host", 3000});
  run.tick(*run.machine.deadline());
  const double since = run.now;
  for (int local = 0; local < 4; ++local) run.handle(event::Exited{{1, local}, {0, SIGKILL}});
  run_until(run, since + 19);
  cr_assert(run.releases.empty());
  run_until(run, since + 20);
  cr_assert_eq(run.releases, Jobs{9}, "though a worker has not ended yet");
  run.handle(event::Exited{{0, 1}, {0, SIGKILL}});
  run.hello(0, 2);
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.workers, 2u);
}

Test(recovery, a_program_that_fails_before_it_is_ready_is_not_started_again) {
  Hanging run(100);
  const double since = run.now;
  run_until(run, since + 99);
  run.handle(event::Exited{{0, 0}, {3, 0}});
  run.handle(event::Hello{{0, 0}, "host", 3000});
  run_until(run, since + 102);
  run.leave(1, 4, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{9});
}

Test(recovery, gpus_that_are_asked_back_meanwhile_go_back_at_once) {
  for (const bool runs : {false, true}) {
    Run run(recovering(1000));
    run.grown();
    run.deaf = true;
    run.handle(event::Exited{{0, 0}, {3, 0}});
    run.handle(event::Hello{{0, 0}, "host", 3000});
    run.tick(*run.machine.deadline());
    run.handle(event::Exited{{0, 1}, {0, SIGKILL}});
    run.handle(event::Hello{{0, 1}, "host", 3001});
    if (runs) run.leave(1, 4, {0, SIGKILL});
    run.signals.clear();
    run.shrink(9, 10);
    if (runs) {
      cr_assert(run.signalled(SIGUSR1, 6));
      run_until(run, run.now + 8);
      cr_assert(run.signalled(SIGKILL, 6), "they never heard of it");
    }
    run.leave(1, 4, {0, SIGKILL});
    cr_assert_eq(run.releases, Jobs{9});
    if (runs) run.leave(0, 2, {0, SIGKILL});
    cr_assert_eq(run.workers, 2u);
    run_until(run, run.now + 3000);
    cr_assert_not(run.has_said("has not recovered"));
  }
}

Test(recovery, a_part_that_is_asked_back_does_not_begin_the_time_anew) {
  Run run(recovering(100));
  run.grow(8, 1);
  run.hello(1, 1);
  run.leave(0, 2);
  run.grow(9, 4);
  run.hello(2, 4);
  run.leave(0, 2);
  run.leave(1, 1);
  cr_assert_eq(run.workers, 7u);
  run.deaf = true;
  fail_once(run, 1);
  run.leave(2, 4, {0, SIGKILL});
  const double since = run.now;
  cr_assert_eq(run.starts, 4);
  run_until(run, since + 50);
  run.shrink(8, 10);
  run_until(run, run.now + 8);
  run.leave(2, 4, {0, SIGKILL});
  run.leave(1, 1, {0, SIGKILL});
  run.leave(0, 2, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{8});
  cr_assert_eq(run.workers, 6u);
  run_until(run, since + 99);
  cr_assert_eq(run.releases, Jobs{8});
  run_until(run, since + 100);
  cr_assert(run.has_said("has not recovered"));
  run.leave(2, 4, {0, SIGKILL});
  cr_assert_eq(run.releases, (Jobs{8, 9}));
}

Test(recovery, a_live_program_is_ready_when_it_has_begun_with_the_runtime) {
  for (const bool begins : {false, true}) {
    LiveAgain run(100);
    const double since = run.now;
    for (const int node : {0, 1}) run.handle(event::Listens{{node, 0}, 2});
    run_until(run, since + 90);
    if (begins) run.handle(event::Begun{2, "", 7});
    run_until(run, since + 99.5);
    cr_assert_not(run.has_signalled(SIGKILL));
    run_until(run, since + 100);
    cr_assert_eq(run.has_signalled(SIGKILL), !begins);
    if (begins) continue;
    run.handle(event::Exited{{1, 0}, {0, SIGKILL}, 2});
    cr_assert_eq(run.releases, std::vector<JobId>{live_run::kCompanion});
  }
}
