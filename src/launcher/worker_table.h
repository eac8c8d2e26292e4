// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// A worker's shim, and its program of the generation that trains.
struct WorkerState {
  std::string host;
  int port = 0;
  JobId step = 0;
  bool present = false, ready = false, running = false;
  int listens = -1;  ///< the newest generation whose program here handles the restart signal
  double listens_since = 0;
  bool ended_well = false;  ///< its last program ended with 0
};

/// The workers of a run, and the programs that they run.
class WorkerTable {
 public:
  /// Running programs of other generations than the one that trains, and when they are killed: they
  /// belong to a switch under way, or were left over by one.
  using Others = std::map<std::pair<int, WorkerId>, double>;

  /// Adds the worker if it is not known.
  WorkerState& operator[](WorkerId id) { return workers_[id]; }
  /// Returns nullptr if the worker is not known.
  const WorkerState* find(WorkerId id) const;
  /// Removes the workers of these nodes.
  void forget(const std::vector<WorkerNode>& nodes);
  Others& others() noexcept { return others_; }
  const Others& others() const noexcept { return others_; }

  /// Returns the workers with a program of the generation that trains.
  std::vector<WorkerId> running() const;
  /// Returns whether programs of the generation that trains run there.
  bool train_on(const std::vector<WorkerNode>& nodes) const;
  /// Returns whether any program runs there.
  bool run_on(const std::vector<WorkerNode>& nodes) const;
  /// Returns how many programs of `generation`, which trains, do not handle the restart signal.
  std::size_t deaf(int generation) const;
  /// Returns whether a running program of `generation` has handled the restart signal for at least
  /// `seconds`, counted from `since` at the earliest.
  bool one_listened(double seconds, int generation, double since, double now) const;

 private:
  std::map<WorkerId, WorkerState> workers_;
  Others others_;
};

}  // namespace swell::launcher
