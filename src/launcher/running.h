// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

#include "launcher/exit.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// A worker has failed; it is not known yet whether a companion's loss explains it.
struct Failure {
  WorkerId worker;
  Exit exit;
  bool on_lent = false;  ///< the worker's GPUs; they may be back before it is decided
  double decide_by = 0;
};

/// A phase of the generation machine: the programs of a generation train, and nothing changes them.
struct Running {
  double since = 0;
  std::optional<Failure> failure;
  bool has_begun = false;       ///< live mode: its programs train with state that can be moved
  bool awaits_runtime = false;  ///< live mode: they may still say hello to their keepers
  /// Live mode: the next programs do not fit a GPU beside these, which write their state as they
  /// leave: growth restarts them.
  bool lacks_room = false;
  /// GPUs go back, and some workers have ended by themselves. Workers still running
  /// at `ask_at` are asked to leave, until `leave_by`.
  std::optional<double> ask_at = std::nullopt;
  double leave_by = 0;
  std::string not_begun = {};  ///< live mode: why the programs were told to leave instead
  double not_begun_by = 0;     ///< where that is so: for all to have left
  /// Workers that might have stayed did not leave in time. An exit until then is a late one.
  std::optional<double> late_until = std::nullopt;
  bool was_resized = false;  ///< just before; a failure soon after restarts the program once
  /// A user's signal spoiled a switch: its programs may be ending, and nothing else changes them.
  std::optional<double> settles_at = std::nullopt;
};

}  // namespace swell::launcher
