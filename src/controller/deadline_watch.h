// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "control/deadline.h"
#include "controller/steps_left.h"
#include "core/policy/policy.h"
#include "slurm/records.h"

namespace swell::controller {

/// How the deadline of a job stands, and why it was missed. Pure; for the job's owner.
class DeadlineWatch {
 public:
  /// A decision saw the job with `gpus`; without a state it looks at no deadlines, or not at this
  /// job.
  void decided(const std::optional<policy::DeadlineState>& state, int gpus, const StepsLeft& steps);
  /// All that is lent is taken back, and nothing is decided, until the next decided().
  void drains() noexcept;
  /// Slurm's time is `now`, and the job has `started`. Returns, once, why the deadline `at` was
  /// missed: one sentence. Nothing before the first decision or drain.
  std::optional<std::string> passes(std::time_t now, std::time_t at, std::time_t started);
  /// An earlier slurmctld has said that it was missed.
  void was_missed() noexcept { is_missed_ = true; }

  /// A few words, such as "kept, with 1.5 h to spare"; empty before the first decision. Slack is
  /// rounded down to a quarter of an hour, or to five minutes, so that they seldom change.
  std::string words() const;
  const std::optional<double>& slack_s() const noexcept { return slack_s_; }
  int needed_gpus() const noexcept { return needed_gpus_; }

 private:
  bool is_missed_ = false;
  bool is_decided_ = false;  ///< there was a decision
  bool drains_ = false;      ///< since the last one
  bool is_seen_ = false;     ///< it looked at the deadline
  bool says_steps_ = false;
  std::optional<double> slack_s_, shown_s_;  ///< the latter is in words()
  int needed_gpus_ = 0, gpus_ = 0;
};

/// The deadline of --elastic, or Slurm's own where it is earlier; 0: --elastic has none. The time
/// limit does not count: jobs that are requeued at it go on.
std::time_t deadline_of(const std::optional<control::Deadline>& deadline,
                        const slurm::JobRecord& record) noexcept;

}  // namespace swell::controller
