// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/state_keeper.h"

#include <vector>

namespace swell::controller {

namespace {

/// Minimum seconds between two writes if only agents have changed the state.
constexpr double kStateEvery_s = 2;

}  // namespace

void StateKeeper::load() {
  if (path_.empty()) return;
  std::vector<std::string> dropped;
  Result<SavedState> saved = load_state(path_, &dropped);
  for (const std::string& what : dropped) loop_.events.say("the saved state: " + what);
  if (saved) {
    loop_.saved = *saved;  // and written at once: it is known soon whether it can be
    return;
  }
  loop_.events.trouble("state", "going on without the saved state: " + saved.error().message());
  written_ = loop_.saved;
}

void StateKeeper::save() {
  loop_.save.done();
  if (path_.empty() || loop_.saved == written_) return;
  if (Result<void> done = save_state(path_, loop_.saved); !done)
    return loop_.events.trouble("state", "the state could not be saved: " + done.error().message());
  written_ = loop_.saved;
  loop_.events.fixed("state");
}

void StateKeeper::save_in_time(double now) {
  const bool is_written = loop_.saved == written_;
  if (path_.empty() || (is_written && !loop_.events.troubles().contains("state"))) return;
  const bool is_told =
      !loop_.save.is_asked() && (!written_ || loop_.saved.issued == written_->issued);
  if (is_told && saved_at_ && now < *saved_at_ + kStateEvery_s) return;
  if (is_written) {
    saved_at_ = now;
    if (!load_state(path_)) return;
    written_.reset();
  }
  const bool is_first = !written_;
  save();
  if (!is_first || !written_) saved_at_ = now;
}

std::optional<double> StateKeeper::due() const {
  if (!saved_at_ || loop_.saved == written_) return std::nullopt;
  return *saved_at_ + kStateEvery_s;
}

}  // namespace swell::controller
