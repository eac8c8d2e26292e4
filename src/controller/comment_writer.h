// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "controller/loop_state.h"

namespace swell::controller {

/// Writes the tags of elastic jobs to their AdminComment, which squeue and scontrol show.
class CommentWriter {
 public:
  explicit CommentWriter(LoopState& loop) : loop_(loop) {}

  /// Writes the tags that have changed, unless slurmctld refused them a short while ago.
  void write(double now);

 private:
  void comment_waits(ElasticJob& job, double now);

  LoopState& loop_;
  /// Slurm could not write an AdminComment yet: no other is tried before.
  struct CommentsWait {
    double until = 0;        ///< of any job
    double again_until = 0;  ///< of jobs that had to wait before
    double pause_s = 0;
  } comments_wait_;
};

}  // namespace swell::controller
