// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "controller/loop_state.h"

namespace swell::controller {

/// Chooses the GPU types of pending jobs that have types= and table=.
class TypeMover {
 public:
  explicit TypeMover(LoopState& loop) : loop_(loop) {}

  /// Moves pending jobs to the type on which they are predicted to end first, once in TypeInterval.
  void choose_types(double now);
  /// Says for `swell why` why a pending job has its type; empty: its type is not chosen.
  std::string why_type(const slurm::JobRecord& pending) const;

 private:
  LoopState& loop_;
  double due_ = 0;  ///< when choose_types() looks again
};

}  // namespace swell::controller
