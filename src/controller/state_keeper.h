// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

#include "controller/loop_state.h"

namespace swell::controller {

/// Keeps `LoopState::saved` in its file: what the controller needs after a crash.
class StateKeeper {
 public:
  /// `path`: an empty one disables the file.
  StateKeeper(LoopState& loop, std::string path) : loop_(loop), path_(std::move(path)) {}

  /// Reads the file into `saved`. Logs and leaves out the parts that cannot be read.
  void load();
  /// Writes `saved` if it has changed since the last write.
  void save();
  /// Writes like save(), but changes that only agents made at most every kStateEvery_s, since
  /// agents may change their state at any rate and a write waits for the disk. While the last
  /// read or write has failed, also writes without a new change, but not over a file that cannot be
  /// read, since an administrator may repair that one.
  void save_in_time(double now);
  /// Returns when save_in_time() will write; nullopt: not before the next change.
  std::optional<double> due() const;

 private:
  LoopState& loop_;
  const std::string path_;
  std::optional<SavedState> written_;  ///< last state that was written; nullopt: none yet
  std::optional<double> saved_at_;     ///< when save_in_time() last wrote
};

}  // namespace swell::controller
