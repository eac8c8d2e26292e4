// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "launcher/event.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// A shim waits for the next program.
struct WorkerReady {
  WorkerId worker;
};
/// The user sent the restart signal; see GenerationMachine::leave_and_return().
struct RestartRequested {
  bool asks = false;
};
using DeferredEvent =
    std::variant<WorkerReady, event::Exited, event::Lost, event::StepEnded, RestartRequested>;

/// Events whose meaning depends on whether a live switch is committed, in their order. They are
/// handled when that is known.
class DeferredEvents {
 public:
  void add(DeferredEvent event) { events_.push_back(std::move(event)); }
  void clear() { events_.clear(); }
  /// Passes each event to `handle`. An event that `handle` adds is kept for the next call.
  template <typename F>
  void drain(F handle) {
    for (const DeferredEvent& event : std::exchange(events_, {})) std::visit(handle, event);
  }

 private:
  std::vector<DeferredEvent> events_;
};

}  // namespace swell::launcher
