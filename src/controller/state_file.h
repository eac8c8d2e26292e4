// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>

#include "control/messages.h"
#include "core/result.h"

namespace swell::controller {

/// What the controller must know after a crash and Slurm does not keep: which grants it issued to
/// which job. With it a companion that started just before the crash is recognised, and one that
/// only claims to be one is not. Counters live in the jobs' AdminComment.
struct SavedState {
  std::map<std::string, control::JobId> issued;   ///< nonce -> parent

  friend bool operator==(const SavedState&, const SavedState&) = default;
};

/// Writes the file anew and renames it into place, synced: after any crash the old or the new state
/// is there, whole.
Result<void> save_state(const std::string& path, const SavedState& state);

/// Reads it back. A file that does not exist gives an empty state; a damaged one an error, after
/// which the caller goes on with an empty state.
Result<SavedState> load_state(const std::string& path);

}  // namespace swell::controller
