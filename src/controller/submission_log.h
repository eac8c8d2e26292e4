// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <ctime>
#include <map>
#include <vector>

#include "control/messages.h"
#include "core/json.h"
#include "core/policy/submissions.h"
#include "core/result.h"
#include "slurm/records.h"

namespace swell::controller {

/// Recent submissions of jobs that ask for GPUs, from Slurm's records; kept over restarts of
/// slurmctld, which forgets ended jobs within minutes. Times are seconds since 1970.
class SubmissionLog {
 public:
  /// Number of jobs and arrays that are kept at most; the oldest are dropped first.
  static constexpr std::size_t kMax = 1000;

  /// Adds the jobs of the snapshot that were submitted in the last `window_s` for at least
  /// `least_gpus` GPUs, and forgets older ones. An array counts by task, those that Slurm has split
  /// off included; a requeued job counts once; companions and cancelled records of other sizes do
  /// not count.
  void look(const slurm::Snapshot& snapshot, double window_s, int least_gpus);
  /// Returns them in order of time, on a clock that shows `now_s` at `now`.
  std::vector<policy::Submission> on_clock(double now_s, std::time_t now) const;

  /// An array of [job, submitted, gpus, tasks], in order of time.
  Json to_json() const;
  static Result<SubmissionLog> from_json(const Json& json);

  friend bool operator==(const SubmissionLog&, const SubmissionLog&) = default;

 private:
  struct Entry {
    std::time_t submitted = 0;
    int gpus = 0;
    int tasks = 1;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  void drop_oldest();

  std::map<control::JobId, Entry> jobs_;  ///< by job; an array by its own id
};

}  // namespace swell::controller
