// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <optional>

#include "controller/comment_writer.h"
#include "controller/loop_state.h"
#include "controller/reclaimer.h"
#include "controller/reconcile.h"

namespace swell::controller {

/// Looks at Slurm's records, and does what follows from what has changed in them.
class SlurmChanges {
 public:
  SlurmChanges(LoopState& loop, Reclaimer& reclaimer, CommentWriter& comments)
      : loop_(loop), reclaimer_(reclaimer), comments_(comments) {}

  /// Brings the job table in line with Slurm's records.
  /// @return whether these had changed; nothing: slurmctld did not answer.
  std::optional<bool> look(double now);

  /// Returns whether slurmctld has answered since the start.
  bool has_looked() const noexcept { return snapshot_at_.has_value(); }
  /// Returns how many looks have shown a change.
  long looks() const noexcept { return looks_; }
  /// Returns when the first look was taken, by Slurm's clock.
  std::time_t first_look() const noexcept { return first_look_; }

 private:
  void take(slurm::Snapshot snapshot, double now);
  void report(const Change& change, double now);
  void job_started(ElasticJob& job, double now);
  void job_ended(JobId id);
  void companion_started(ElasticJob& job, const Companion& companion, double now);
  void companion_preempted(ElasticJob& job, const Companion& companion, double now);
  void companion_excessive(ElasticJob& job, const Companion& companion, double now);
  void companion_ended(ElasticJob& job, const Companion& companion);
  void companion_lost(ElasticJob& job, const Companion& companion, double now);
  void say(const char* kind, JobId job, const Companion& companion, const std::string& sentence);

  LoopState& loop_;
  Reclaimer& reclaimer_;
  CommentWriter& comments_;
  long looks_ = 0;
  std::time_t first_look_ = 0;
  std::optional<double> snapshot_at_;  ///< when the snapshot was taken
};

}  // namespace swell::controller
