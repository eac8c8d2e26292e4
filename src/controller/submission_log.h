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

/// Recent submissions of jobs that ask for GPUs, from Slurm's records: those that have started, and
/// those that wait for resources now. Held and cancelled ones tell nothing, and cost their user
/// nothing. Those that have started are kept over restarts of slurmctld, which forgets ended jobs
/// within minutes. Times are seconds since 1970.
class SubmissionLog {
 public:
  /// Takes over the jobs of the snapshot that were submitted in the last `window_s` for at least
  /// `least_gpus` GPUs, and forgets older ones. Each task of an array counts, a requeued job once;
  /// companions do not count. At most policy::kMaxSubmissions that have started are kept. Linear in
  /// the snapshot.
  void look(const slurm::Snapshot& snapshot, double window_s, int least_gpus);
  /// Returns them in order of time, on a clock that shows `now_s` at `now`.
  std::vector<policy::Submission> on_clock(double now_s, std::time_t now) const;

  /// An array of [job, submitted, gpus] of those that have started.
  Json to_json() const;
  static Result<SubmissionLog> from_json(const Json& json);

  /// Compares what is kept over restarts.
  friend bool operator==(const SubmissionLog& a, const SubmissionLog& b) {
    return a.started_ == b.started_;
  }

 private:
  struct Entry {
    std::time_t submitted = 0;
    int gpus = 0;
    int tasks = 1;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  void drop_oldest();

  std::map<control::JobId, Entry> started_;
  std::vector<Entry> waiting_;  ///< of the last snapshot
};

}  // namespace swell::controller
