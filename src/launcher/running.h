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
  bool on_lent = false;  ///< the worker had lent GPUs, which may be back by `decide_by`
  double decide_by = 0;
};

/// A phase of the generation machine: the programs of a generation train, and nothing changes them.
struct Running {
  double since = 0;
  std::optional<Failure> failure;
  bool has_begun = false;       ///< live mode: its programs train with state that can be moved
  bool awaits_runtime = false;  ///< live mode: they may still connect to their keepers
  /// Live mode: a GPU has no memory for the next programs beside these. Since these write their
  /// state as they leave, a growth restarts them.
  bool lacks_room = false;
  /// GPUs go back, and some workers have ended by themselves. Workers still running
  /// at `ask_at` are asked to leave, until `leave_by`.
  std::optional<double> ask_at = std::nullopt;
  double leave_by = 0;
  std::string not_begun = {};  ///< live mode: why the programs could not begin
  double not_begun_by = 0;     ///< deadline for all to leave if `not_begun` is set
  /// Set if workers did not leave for a resize that was given up: until when they may leave late.
  std::optional<double> late_until = std::nullopt;
  bool was_resized = false;  ///< just before; a failure soon after restarts the program once
  /// Set if a user's signal made a switch fail: until then programs may end; nothing else changes.
  std::optional<double> settles_at = std::nullopt;
};

}  // namespace swell::launcher
