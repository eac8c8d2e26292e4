// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <string>

#include "controller/loop_state.h"

namespace swell::controller {

/// Answers questions for the history, which its thread looks up meanwhile.
class HistoryRequests {
 public:
  /// Refuses what the connection asked for, and closes it.
  using Refuse = std::function<void(control::ConnectionId connection, const std::string& reason)>;

  explicit HistoryRequests(LoopState& loop) : loop_(loop) {}

  /// Hands the question to the history's thread, or refuses it.
  void ask(const control::Server::Event& event, const control::Ask& ask);
  /// Sends what the thread has found to those who asked. `refuse`: those who asked may speak for a
  /// job by now.
  void answer(const Refuse& refuse);

 private:
  LoopState& loop_;
};

}  // namespace swell::controller
