// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "launcher/held_companions.h"
#include "launcher/rank_assignment.h"
#include "launcher/worker_table.h"

namespace swell::launcher {

/// Returns whether the assignment gives one of the companion's workers a rank.
bool has_seat(const RankAssignment& assignment, const HeldCompanion& companion);

/// The state of a run that does not depend on what it is about to change: its nodes, companions,
/// workers and programs, and the generation that trains. Pure.
struct RunState {
  explicit RunState(std::vector<WorkerNode> basic) : companions(std::move(basic)) {}

  HeldCompanions companions;
  WorkerTable workers;
  RankAssignment assignment;  ///< of the generation that trains
  int generation = -1;        ///< that trains, or trained last
  int last_generation = -1;   ///< the highest that was tried

  /// Returns whether a program was started at some time.
  bool has_begun() const noexcept { return last_generation >= 0; }
  bool takes_part(const HeldCompanion& companion) const { return has_seat(assignment, companion); }
  /// Returns whether no worker has ended by itself, as all do at the training's end.
  bool all_train() const { return workers.running().size() == assignment.seats.size(); }
  /// Returns whether no worker of the job's own has ended by itself.
  bool basic_train() const;
  /// Returns whether all programs of this generation that run handle the restart signal, and so
  /// write their state as they leave.
  bool all_listen() const { return workers.deaf(generation) == 0; }
  /// Returns whether the last programs of all workers of the generation have ended with 0.
  bool all_ended_well() const;
  /// Returns whether all workers of the generation could run another program.
  bool shims_are_there() const;
  /// Returns whether all workers of `next` wait for a program.
  bool are_ready(const RankAssignment& next) const;
  /// Returns whether each worker of `next` has a rank already.
  bool covers(const RankAssignment& next) const;
  /// Returns whether lent GPUs are part of the generation, and have not been asked back.
  bool trains_on_lent() const;
  /// Returns whether the generation has, or had, lent GPUs: they may have gone back since.
  bool lent_took_part() const;
  /// Returns whether lent GPUs that are up wait for others that are not, so that one growth
  /// includes all. The others may never come up, for example if a node's TaskProlog hangs.
  bool waits_for_stragglers() const;
  /// Returns when the first companion that takes part and is given back must be free; nullopt:
  /// there is no such companion.
  std::optional<double> drain_by() const;
};

}  // namespace swell::launcher
