// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/command.h"
#include "launcher/process_runner.h"
#include "launcher/slurm_env.h"

namespace swell::launcher {

/// Runs the sruns that run shims. An srun of the job's own that failed before the first program
/// began, because a slurmd or slurmctld was away, is launched again. `now`: seconds of one clock.
class StepLauncher {
 public:
  struct Settings {
    JobId job = 0;  ///< the job's own; others are companions
    std::shared_ptr<const InputPlan> input;
    std::optional<std::time_t> slurmctld_since;  ///< as swellrun saw it
  };
  /// Called for each srun that has ended, or could not be started, and is not launched again.
  using Ended = std::function<void(JobId, const Exit&)>;
  /// Says a line to the user.
  using Say = std::function<void(const std::string&)>;
  StepLauncher(Settings settings, ProcessRunner& runner, Ended ended, Say say)
      : settings_(std::move(settings)),
        runner_(runner),
        ended_(std::move(ended)),
        say_(std::move(say)) {}

  /// Launches the steps of one allocation. If slurmctld was started just now, the job's own steps
  /// wait for it. The first of these has standard input.
  void start(JobId job, std::vector<Command> commands, double now);
  /// Handles a process that has ended. Returns false if another part started it. `may_begin_again`:
  /// no program has begun, so that a new launch loses nothing.
  bool take(const ProcessRunner::Ended& ended, bool may_begin_again, double now);
  /// Returns when launch_due() is due; nullopt: no launch waits.
  std::optional<double> deadline() const;
  void launch_due(double now);
  /// Prevents further launches, since the run has ended.
  void stop();

  bool runs(JobId job) const;
  std::vector<JobId> companions() const;
  /// Kills the sruns of companions.
  void kill_companions() const;
  /// At the end of the run: signals every srun, and kills the scontrols that ask about slurmctld.
  void end(int signal) const;

 private:
  struct Step {
    JobId job = 0;
    Command command;
    bool foreground = false;  ///< the job's own first step, which has standard input
    int launches = 1;
  };
  /// An srun that failed, until it is known whether slurmctld was away meanwhile.
  struct Failed {
    Step step;
    Exit exit;
  };
  void launch(Step step);
  bool may_launch_again(const Step& step, bool may_begin_again) const;
  bool launches_again(const Step& step, const Exit& exit, bool may_begin_again, double now);
  bool asks_for_slurmctld(const Step& step, const Exit& exit);
  void answered(const Failed& failed, const ProcessRunner::Ended& config, bool may_begin_again,
                double now);
  void launch_later(Step step, const Exit& exit, const char* why, double pause_s, double now);

  const Settings settings_;
  ProcessRunner& runner_;
  Ended ended_;
  Say say_;
  const std::time_t began_ = std::time(nullptr);
  std::map<pid_t, Step> steps_;
  std::vector<std::pair<double, Step>> waiting_;  ///< with the times of their launches
  std::map<pid_t, Failed> failed_;                ///< by pid of the scontrol that asks
  bool is_over_ = false;
};

}  // namespace swell::launcher
