// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/leaving_companions.h"

#include <criterion/criterion.h>
#include <csignal>

#include "support/fake_runner.h"

using namespace swell;
using namespace swell::launcher;
using support::FakeRunner;

namespace {

struct Trial {
  FakeRunner runner;
  std::vector<JobId> released;
  LeavingCompanions leaving{runner, [](JobId job) { return "swell-" + std::to_string(job); },
                            [this](JobId job) { released.push_back(job); }};
};

}  // namespace

Test(leaving_companions, one_without_a_step_is_cancelled_at_once_and_then_released) {
  Trial trial;
  trial.leaving.release(7, false, 100);
  cr_assert_eq(trial.runner.started.size(), 1u);
  bool by_name = false;
  for (const std::string& word : trial.runner.last().command)
    by_name = by_name || word.find("swell-7") != std::string::npos;
  cr_assert(by_name, "its id alone may be another job's by now");
  cr_assert(trial.released.empty());
  cr_assert(trial.leaving.contains(7));
  cr_assert_not(trial.leaving.deadline().has_value());
  cr_assert(trial.leaving.take(FakeRunner::ended(100)));
  cr_assert(trial.released == std::vector<JobId>{7});
  cr_assert_not(trial.leaving.contains(7));
}

Test(leaving_companions, a_step_has_a_second_to_end_by_itself) {
  Trial trial;
  trial.leaving.release(7, true, 100);
  cr_assert(trial.runner.started.empty());
  const double at = trial.leaving.deadline().value();
  cr_assert_eq(at, 100 + LeavingCompanions::kStepEnd_s);
  trial.leaving.cancel_late(at - 0.1);
  cr_assert(trial.runner.started.empty());
  trial.leaving.cancel_late(at);
  trial.leaving.cancel_late(at);
  trial.leaving.step_ended(7);
  cr_assert_eq(trial.runner.started.size(), 1u, "it is cancelled once");
}

Test(leaving_companions, the_end_of_its_step_ends_the_wait) {
  Trial trial;
  trial.leaving.release(7, true, 100);
  trial.leaving.step_ended(8);
  cr_assert(trial.runner.started.empty());
  trial.leaving.step_ended(7);
  cr_assert_eq(trial.runner.started.size(), 1u);
}

Test(leaving_companions, one_that_cannot_be_cancelled_is_released_all_the_same) {
  Trial trial;
  trial.runner.fails = true;
  trial.leaving.release(7, false, 100);
  cr_assert(trial.released == std::vector<JobId>{7});
  cr_assert_not(trial.leaving.contains(7));
}

Test(leaving_companions, a_scancel_that_hangs_can_be_killed) {
  Trial trial;
  trial.leaving.release(7, false, 100);
  cr_assert_not(trial.leaving.take(FakeRunner::ended(4711)));
  trial.leaving.kill();
  cr_assert(trial.runner.signals == (std::vector<std::pair<pid_t, int>>{{100, SIGKILL}}));
}
