// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/step_launcher.h"

#include <cerrno>
#include <criterion/criterion.h>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

#include "support/fake_runner.h"

using namespace swell;
using namespace swell::launcher;
using support::FakeRunner;

namespace {

constexpr int kLost = ECONNREFUSED;  // srun's code where a slurmd did not answer

/// The job's own id is 5.
struct Trial {
  explicit Trial(std::optional<std::time_t> slurmctld_since = std::nullopt)
      : steps(
            {5, std::make_shared<const InputPlan>(), slurmctld_since}, runner,
            [this](JobId job, const Exit& exit) { ended.emplace_back(job, exit.status()); },
            [this](const std::string& line) { said.push_back(line); }) {
    // A terminal and /dev/null have more for a step that is launched again.
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    close(null);
    unsetenv("SLURM_EXIT_ERROR");
  }
  FakeRunner runner;
  std::vector<std::pair<JobId, int>> ended;
  std::vector<std::string> said;
  StepLauncher steps;
};

std::string config_since(std::time_t since) {
  std::tm local{};
  localtime_r(&since, &local);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &local);
  return std::string("BOOT_TIME = ") + text +
         "\nSlurmUser = slurm(64030)\nSLURM_CONF = /etc/slurm/slurm.conf\n"
         "SlurmctldHost[0] = head(127.0.0.1)\n";
}

}  // namespace

Test(step_launcher, only_the_first_step_of_the_jobs_own_has_standard_input) {
  Trial trial;
  trial.steps.start(5, {{"srun", "a"}, {"srun", "b"}}, 0);
  trial.steps.start(7, {{"srun", "c"}}, 0);
  cr_assert_eq(trial.runner.started.size(), 3u);
  cr_assert(trial.runner.started[0].how.foreground);
  cr_assert_not(trial.runner.started[1].how.foreground);
  cr_assert_not(trial.runner.started[2].how.foreground);
  cr_assert(trial.steps.runs(5) && trial.steps.runs(7));
  cr_assert(trial.steps.companions() == std::vector<JobId>{7});
}

Test(step_launcher, a_slurmctld_that_was_just_started_is_given_time_to_know_its_nodes) {
  Trial trial(std::time(nullptr));
  trial.steps.start(5, {{"srun"}}, 100);
  cr_assert(trial.runner.started.empty());
  const double at = trial.steps.deadline().value();
  cr_assert(at > 100 && at <= 107, "%g", at);
  trial.steps.launch_due(at - 0.1);
  cr_assert(trial.runner.started.empty());
  trial.steps.launch_due(at);
  cr_assert_eq(trial.runner.started.size(), 1u);
  trial.steps.start(7, {{"srun"}}, 100);
  cr_assert_eq(trial.runner.started.size(), 2u, "a companion was granted by it");
}

Test(step_launcher, a_step_that_lost_a_slurmd_before_the_program_began_is_launched_again) {
  Trial trial;
  trial.steps.start(5, {{"srun", "a"}}, 0);
  cr_assert(trial.steps.take(FakeRunner::ended(100, kLost), true, 10));
  cr_assert(trial.ended.empty());
  cr_assert_eq(trial.said.size(), 1u);
  trial.steps.launch_due(trial.steps.deadline().value());
  cr_assert_eq(trial.runner.started.size(), 2u);
  cr_assert(trial.runner.last().command == (std::vector<std::string>{"srun", "a"}));
  cr_assert(trial.runner.last().how.foreground);
}

Test(step_launcher, it_is_not_launched_again_for_ever) {
  Trial trial;
  trial.steps.start(5, {{"srun"}}, 0);
  double now = 0;
  while (trial.ended.empty()) {
    cr_assert_leq(trial.runner.started.size(), 4u);
    trial.steps.take(FakeRunner::ended(trial.runner.last().pid, kLost), true, now);
    if (const auto at = trial.steps.deadline()) trial.steps.launch_due(now = *at);
  }
  cr_assert_eq(trial.runner.started.size(), 4u);
  cr_assert_eq(trial.ended[0].second, kLost);
}

Test(step_launcher, a_program_that_has_begun_and_a_companion_are_not_launched_again) {
  Trial trial;
  trial.steps.start(5, {{"srun"}}, 0);
  trial.steps.start(7, {{"srun"}}, 0);
  cr_assert(trial.steps.take(FakeRunner::ended(100, kLost), false, 10));
  cr_assert(trial.steps.take(FakeRunner::ended(101, kLost), true, 10));
  cr_assert(trial.ended == (std::vector<std::pair<JobId, int>>{{5, kLost}, {7, kLost}}));
  cr_assert_not(trial.steps.runs(5));
}

Test(step_launcher, an_error_of_sruns_own_counts_unless_slurmctld_was_away) {
  for (const bool away : {true, false}) {
    Trial trial;
    trial.steps.start(5, {{"srun"}}, 0);
    cr_assert(trial.steps.take(FakeRunner::ended(100, 1), true, 10));
    cr_assert(trial.ended.empty());
    cr_assert(trial.runner.last().command ==
              (std::vector<std::string>{"scontrol", "show", "config"}));
    const std::time_t since = std::time(nullptr) - (away ? 0 : 3600);
    cr_assert(trial.steps.take(FakeRunner::ended(101, 0, config_since(since)), true, 11));
    cr_assert_eq(trial.ended.empty(), away);
    cr_assert_eq(trial.steps.deadline().has_value(), away);
  }
}

Test(step_launcher, a_slurmctld_that_does_not_answer_is_away) {
  Trial trial;
  trial.steps.start(5, {{"srun"}}, 0);
  trial.steps.take(FakeRunner::ended(100, 1), true, 10);
  trial.steps.take(FakeRunner::ended(101, 1), true, 10);
  cr_assert(trial.ended.empty());
  cr_assert(trial.steps.deadline().has_value());
}

Test(step_launcher, nothing_is_launched_once_the_run_is_over) {
  Trial trial;
  trial.steps.start(5, {{"srun"}, {"srun"}}, 0);
  trial.steps.take(FakeRunner::ended(100, kLost), true, 10);
  trial.steps.take(FakeRunner::ended(101, 1), true, 10);
  trial.steps.stop();
  cr_assert(trial.steps.take(FakeRunner::ended(102, 1), false, 11), "what asked for slurmctld");
  trial.steps.launch_due(1000);
  cr_assert_eq(trial.runner.started.size(), 3u);
  cr_assert(trial.ended.empty(), "nobody waits for it");
}

Test(step_launcher, a_step_that_cannot_be_started_has_ended) {
  Trial trial;
  trial.runner.fails = true;
  trial.steps.start(5, {{"srun"}}, 0);
  cr_assert(trial.ended == (std::vector<std::pair<JobId, int>>{{5, 127}}));
  cr_assert(trial.said.at(0).find("no more processes") != std::string::npos);
}

Test(step_launcher, companions_are_killed_without_the_jobs_own) {
  Trial trial;
  trial.steps.start(5, {{"srun"}}, 0);
  trial.steps.start(7, {{"srun"}}, 0);
  trial.steps.kill_companions();
  cr_assert(trial.runner.signals == (std::vector<std::pair<pid_t, int>>{{101, SIGKILL}}));
  trial.steps.end(SIGTERM);
  cr_assert_eq(trial.runner.signals.size(), 3u);
  cr_assert_eq(trial.runner.signals.back().second, SIGTERM);
}
