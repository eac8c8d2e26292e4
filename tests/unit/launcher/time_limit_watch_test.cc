// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/time_limit_watch.h"

#include <criterion/criterion.h>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "support/fake_runner.h"

using namespace swell;
using namespace swell::launcher;
using support::FakeRunner;

namespace {

struct Trial {
  explicit Trial(double before_end_s = 120)
      : watch(5, before_end_s, runner, [this](std::optional<double> at) { ends.push_back(at); }) {
    unsetenv("SLURM_JOB_END_TIME");
  }
  FakeRunner runner;
  std::vector<std::optional<double>> ends;
  TimeLimitWatch watch;
};

}  // namespace

Test(time_limit_watch, nothing_is_asked_where_nobody_wants_to_know) {
  Trial trial(0);
  cr_assert_not(trial.watch.deadline().has_value());
  trial.watch.look(1000);
  cr_assert(trial.runner.started.empty());
}

Test(time_limit_watch, the_end_is_told_and_asked_for_again) {
  Trial trial;
  trial.watch.look(1000);
  cr_assert_eq(trial.runner.last().command.front(), "squeue");
  cr_assert_not(trial.watch.deadline().has_value(), "one question at a time");
  cr_assert(trial.watch.take(FakeRunner::ended(100, 0, "5 1:00:00\n"), 1001));
  cr_assert(trial.ends == (std::vector<std::optional<double>>{1001 + 3600}));
  cr_assert_eq(trial.watch.deadline().value(), 1001 + 60);
}

Test(time_limit_watch, it_is_asked_for_more_often_as_it_comes_near) {
  Trial trial;
  trial.watch.look(1000);
  trial.watch.take(FakeRunner::ended(100, 0, "5 2:20\n"), 1000);
  cr_assert_eq(trial.watch.deadline().value(), 1010, "half of the 20 s until it is to be told");
  trial.watch.look(1010);
  trial.watch.take(FakeRunner::ended(101, 0, "5 2:01\n"), 1010);
  cr_assert_eq(trial.watch.deadline().value(), 1015);
}

Test(time_limit_watch, a_job_may_have_no_limit_and_slurmctld_may_not_answer) {
  Trial trial;
  trial.watch.look(1000);
  trial.watch.take(FakeRunner::ended(100, 1, "squeue: error: no answer\n"), 1000);
  cr_assert(trial.ends.empty(), "what was said before stands");
  trial.watch.look(trial.watch.deadline().value());
  trial.watch.take(FakeRunner::ended(101, 0, "5 UNLIMITED\n"), 1060);
  cr_assert(trial.ends == (std::vector<std::optional<double>>{std::nullopt}));
}

Test(time_limit_watch, other_processes_are_left_to_others) {
  Trial trial;
  cr_assert_not(trial.watch.take(FakeRunner::ended(0), 1));
  trial.watch.kill();
  cr_assert(trial.runner.signals.empty());
  trial.watch.look(1000);
  cr_assert_not(trial.watch.take(FakeRunner::ended(4711), 1));
  trial.watch.kill();
  cr_assert(trial.runner.signals == (std::vector<std::pair<pid_t, int>>{{100, SIGKILL}}));
}
