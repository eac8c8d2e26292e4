// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

#include "controller/loop_state.h"

namespace swell::controller {

/// Keeps `LoopState::saved` in its file: what the controller needs after a crash.
class StateKeeper {
 public:
  /// `path`: empty: nothing is kept.
  StateKeeper(LoopState& loop, std::string path) : loop_(loop), path_(std::move(path)) {}

  /// Reads the file into `saved`. Says which parts cannot be read; they are left out.
  void load();
  /// Writes `saved` if it has changed since the last write.
  void save();
  /// Writes as save() does, but what agents alone have changed no more often than kStateEvery_s:
  /// they change it as they like, and a write waits for the disk. After a trouble it also writes
  /// without a change, but not over a file that cannot be read: that may still be repaired.
  void save_in_time(double now);
  /// Returns when save_in_time() has something to write; nothing: not before the next change.
  std::optional<double> due() const;

 private:
  LoopState& loop_;
  const std::string path_;
  std::optional<SavedState> written_;  ///< none: not known to be written yet
  std::optional<double> saved_at_;     ///< when save_in_time() last wrote
};

}  // namespace swell::controller
