// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "launcher/action.h"
#include "launcher/run_state.h"

namespace swell::launcher {

/// Collects the actions that the generation machine wants done, in order.
class ActionList {
 public:
  /// `run` must outlive the list.
  explicit ActionList(const RunState& run) : run_(run) {}

  template <typename T>
  void add(T action) {
    actions_.emplace_back(std::move(action));
  }
  /// Adds a line for people.
  void say(std::string line) { add(action::Say{std::move(line)}); }
  /// Adds an event for --swell-events, with the generation and the GPUs that the run has.
  void note(const std::string& event, Json details = Json::object());
  /// Returns the actions since the last call.
  std::vector<action::Any> take() { return std::exchange(actions_, {}); }

 private:
  const RunState& run_;
  std::vector<action::Any> actions_;
};

}  // namespace swell::launcher
