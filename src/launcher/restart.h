// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/exit.h"
#include "launcher/reconfiguration.h"
#include "launcher/running.h"

namespace swell::launcher {

/// The restart strategy: the workers are asked to leave, or killed, and the programs of the next
/// generation start once all have left. Pure.
class Restart {
 public:
  /// `before`: the phase to return to if no worker leaves, for a growth, a user's signal or a
  /// requeue. None: the workers must leave.
  explicit Restart(Reconfiguration what, std::optional<Running> before = std::nullopt)
      : what_(what), before_(std::move(before)) {}

  const Reconfiguration& what() const noexcept { return what_; }
  double deadline() const noexcept { return what_.deadline; }
  void shorten(double deadline) noexcept { what_.deadline = std::min(what_.deadline, deadline); }
  /// Gives workers until `deadline`, since others have left or are killed.
  void extend(double deadline) noexcept { what_.deadline = deadline; }

  /// Returns whether the workers train on if none of them leaves.
  bool may_return() const noexcept { return before_.has_value(); }
  void must_leave() noexcept { before_.reset(); }
  /// Returns the phase to return to. REQUIRES: may_return().
  Running take_before() { return std::move(*before_); }

  /// Notes that workers leave because one was killed or died, not because they were asked to.
  void force() noexcept { is_forced_ = true; }
  bool is_forced() const noexcept { return is_forced_; }

  /// How a program ended after it was asked to leave.
  struct Answer {
    bool is_clean = true;    ///< it ended as programs do that were asked or killed
    bool by_signal = false;  ///< it died of the signal by which it was asked
  };
  /// Notes that a worker has left.
  void left(const Exit& exit, Answer answer) noexcept;
  /// Returns true at the first call only: the user is told of one program that ended with an error.
  bool tells_of_bad_exit() noexcept { return !std::exchange(told_of_bad_exit_, true); }

 private:
  Reconfiguration what_;
  std::optional<Running> before_;
  bool told_of_bad_exit_ = false;
  bool is_forced_ = false;
};

}  // namespace swell::launcher
