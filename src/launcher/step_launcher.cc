// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/step_launcher.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/launch_again.h"

namespace swell::launcher {

void StepLauncher::start(JobId job, std::vector<Command> commands, double now) {
  const bool companion = job != settings_.job;
  bool foreground = !companion;
  const double wait_s =
      companion ? 0 : knows_nodes_in(settings_.slurmctld_since, std::time(nullptr));
  for (Command& command : commands) {
    Step step{job, std::move(command), std::exchange(foreground, false)};
    if (wait_s > 0) waiting_.emplace_back(now + wait_s, std::move(step));
    else launch(std::move(step));
  }
}

void StepLauncher::launch(Step step) {
  const bool companion = step.job != settings_.job;
  auto environment = companion ? companion_step_environment(environ) : step_environment(environ);
  environment.push_back("SWELL_AGENT=1");  // spank_swell then gives no hint about plain srun
  const SpooledInput* input = settings_.input->spooled ? &*settings_.input->spooled : nullptr;
  const Result<pid_t> pid =
      runner_.start(step.command, environment, {.foreground = step.foreground, .input = input});
  if (pid) {
    steps_[*pid] = std::move(step);
    return;
  }
  say_(pid.error().message());
  ended_(step.job, {127, 0});
}

bool StepLauncher::take(const ProcessRunner::Ended& ended, bool may_begin_again, double now) {
  if (const auto step = steps_.find(ended.pid); step != steps_.end()) {
    const Step its = std::move(step->second);
    steps_.erase(step);
    if (!launches_again(its, ended.exit, may_begin_again, now)) ended_(its.job, ended.exit);
    return true;
  }
  const auto failed = failed_.find(ended.pid);
  if (failed == failed_.end()) return false;
  const Failed its = std::move(failed->second);
  failed_.erase(failed);
  answered(its, ended, may_begin_again, now);
  return true;
}

/// Returns whether the job's own step may be launched again. A companion's GPUs go back instead.
bool StepLauncher::may_launch_again(const Step& step, bool may_begin_again) const {
  if (step.job != settings_.job || !may_begin_again) return false;
  // Input that srun has read for a program that did not begin is lost, unless it is kept here, or
  // comes from /dev/null or a terminal.
  struct stat input {};
  return !step.foreground || settings_.input->spooled || fstat(STDIN_FILENO, &input) != 0 ||
         S_ISCHR(input.st_mode);
}

/// Returns whether this srun is, or may be, launched again later: a slurmd or slurmctld was away
/// when it launched.
bool StepLauncher::launches_again(const Step& step, const Exit& exit, bool may_begin_again,
                                  double now) {
  const auto pause_s = launch_again_in(step.launches);
  if (!pause_s || !may_launch_again(step, may_begin_again)) return false;
  if (!slurmd_was_lost(exit)) return asks_for_slurmctld(step, exit);
  launch_later(step, exit, "a node's slurmd did not answer", *pause_s, now);
  return true;
}

/// Asks whether slurmctld was away: only then can another launch help against an error of srun's
/// own, which may also be a bad option. Returns whether it asks.
bool StepLauncher::asks_for_slurmctld(const Step& step, const Exit& exit) {
  if (!srun_failed(exit, std::getenv("SLURM_EXIT_ERROR"))) return false;
  const auto pid = runner_.start({"scontrol", "show", "config"}, outside_environment(environ),
                                 {.capture = true});
  if (pid) failed_.emplace(*pid, Failed{step, exit});
  return pid.ok();
}

void StepLauncher::answered(const Failed& failed, const ProcessRunner::Ended& config,
                            bool may_begin_again, double now) {
  if (is_over_) return;
  const auto seen = read_config(config.output);
  const bool was_away =
      config.exit.status() != 0 || !seen || slurmctld_was_away(seen->slurmctld_since, began_);
  const auto pause_s = launch_again_in(failed.step.launches);
  if (!was_away || !pause_s || !may_launch_again(failed.step, may_begin_again))
    return ended_(failed.step.job, failed.exit);
  const double known_s = seen ? knows_nodes_in(seen->slurmctld_since, std::time(nullptr)) : 0;
  launch_later(failed.step, failed.exit, "slurmctld was away", std::max(*pause_s, known_s), now);
}

void StepLauncher::launch_later(Step step, const Exit& exit, const char* why, double pause_s,
                                double now) {
  say_(fmt::format("srun ended with {}: {}; its workers are launched again in {:g} s",
                   exit.status(), why, pause_s));
  step.launches += 1;
  waiting_.emplace_back(now + pause_s, std::move(step));
}

std::optional<double> StepLauncher::deadline() const {
  std::optional<double> first;
  for (const auto& [at, step] : waiting_) first = std::min(first.value_or(at), at);
  return first;
}

void StepLauncher::launch_due(double now) {
  std::vector<Step> due;
  std::erase_if(waiting_, [&](auto& each) {
    if (now >= each.first) due.push_back(std::move(each.second));
    return now >= each.first;
  });
  for (Step& step : due) launch(std::move(step));
}

void StepLauncher::stop() {
  is_over_ = true;
  waiting_.clear();
}

bool StepLauncher::runs(JobId job) const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [job](const auto& step) { return step.second.job == job; });
}

std::vector<JobId> StepLauncher::companions() const {
  std::vector<JobId> jobs;
  for (const auto& [pid, step] : steps_)
    if (step.job != settings_.job) jobs.push_back(step.job);
  return jobs;
}

void StepLauncher::kill_companions() const {
  for (const auto& [pid, step] : steps_)
    if (step.job != settings_.job) runner_.signal(pid, SIGKILL);
}

void StepLauncher::end(int signal) const {
  for (const auto& [pid, step] : steps_) runner_.signal(pid, signal);
  for (const auto& [pid, failed] : failed_) runner_.signal(pid, SIGKILL);
}

}  // namespace swell::launcher
