// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/action_list.h"
#include "launcher/rank_assignment.h"
#include "launcher/run_state.h"

namespace swell::launcher {

/// Asks programs to leave: by the restart signal, or, if live programs do not handle it, at a step
/// that they agree on.
class LeaveRequest {
 public:
  struct Settings {
    int restart_signal = 10;
    double agree_s = 4;  ///< for live programs to agree; at most a quarter of their time
  };
  /// `run` and `out` must outlive the request.
  LeaveRequest(Settings settings, const RunState& run, ActionList& out)
      : settings_(settings), run_(run), out_(out) {}

  /// Asks the workers to leave within `within_s`, unless they are being asked. `live`: they can
  /// agree on a step. REQUIRES: a worker runs.
  void ask(double now, double within_s, bool live);
  /// Returns whether workers were asked and have not agreed on a step yet.
  bool is_pending() const noexcept { return pending_.has_value(); }
  /// Returns when each worker is asked by itself instead; nullopt: nothing is pending.
  std::optional<double> deadline() const;
  /// Stops waiting for an agreement: each worker is asked by itself.
  void give_up();
  /// Notes that the workers of `generation` except `untold` leave at `step`, or, if that is 0, each
  /// at its next step boundary. Returns false if this was not asked for.
  bool answered(int generation, std::uint64_t step, const std::vector<WorkerId>& untold);
  void drop() noexcept { pending_.reset(); }

 private:
  struct Pending {
    int generation = 0;
    std::vector<WorkerId> workers;
    double by = 0;
  };
  const Settings settings_;
  const RunState& run_;
  ActionList& out_;
  std::optional<Pending> pending_;
};

}  // namespace swell::launcher
