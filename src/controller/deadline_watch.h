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
  /// Records a decision that was made while the job had `gpus`. `state`: how the deadline stood in
  /// it; empty if the policy does not look at deadlines, or has not looked at this job.
  void decided(const std::optional<policy::DeadlineState>& state, int gpus, const StepsLeft& steps);
  /// Records that all lent GPUs are taken back, and that nothing is decided until the next
  /// decided().
  void drains() noexcept;
  /// Returns a sentence that says why the deadline `at` was missed, at the first call after it (all
  /// times are Slurm's). Returns nothing at other calls, and before the first decision or drain.
  std::optional<std::string> passes(std::time_t now, std::time_t at, std::time_t started);
  /// Records that an earlier slurmctld has said that the deadline was missed.
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
