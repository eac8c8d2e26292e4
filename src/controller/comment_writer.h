// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <map>
#include <string>

#include "controller/loop_state.h"

namespace swell::controller {

/// Writes the tags of elastic jobs to their AdminComment, which squeue and scontrol show.
class CommentWriter {
 public:
  explicit CommentWriter(LoopState& loop) : loop_(loop) {}

  /// Takes the comments from Slurm's records. REQUIRES: the job table shows what these show.
  void look();
  /// Writes the tags that have changed, unless slurmctld refused them a short while ago.
  void write(double now);

 private:
  struct AdminComment {
    std::time_t started = 0;  ///< ElasticJob::started
    std::string seen;         ///< in Slurm's records at the last look
    std::string written;      ///< as last written, or seen to be changed by others
    double again_at = 0;      ///< it was refused, or had to wait, and is not tried before
    double pause_s = 0;       ///< since it was refused
    int waited = 0;           ///< times in a row that slurmctld could not write it yet
    bool taken = false;       ///< slurmctld has written one
  };
  void comment_waits(JobId job, AdminComment& comment, double now);

  LoopState& loop_;
  std::map<JobId, AdminComment> comments_;
  /// Slurm could not write an AdminComment yet: no other is tried before.
  struct CommentsWait {
    double until = 0;        ///< of any job
    double again_until = 0;  ///< of jobs that had to wait before
    double pause_s = 0;
  } comments_wait_;
};

}  // namespace swell::controller
