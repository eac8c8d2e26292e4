// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>

#include "controller/loop_state.h"

namespace swell::controller {

/// Keeps the scale tables that owners are shown, over restarts in the history.
class ScaleKeeper {
 public:
  explicit ScaleKeeper(LoopState& loop) : loop_(loop) {}

  /// Takes the tables of a decision.
  void take(const std::map<JobId, planner::NamedTable>& scales);
  /// Sets the tables that the history kept, of jobs that no decision has planned for yet.
  void take_kept();

 private:
  LoopState& loop_;
};

}  // namespace swell::controller
