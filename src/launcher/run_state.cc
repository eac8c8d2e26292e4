// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/run_state.h"

#include <algorithm>

namespace swell::launcher {

namespace {

/// Returns whether `holds` is true of each seat of `assignment`.
template <typename F>
bool all_of(const RankAssignment& assignment, F holds) {
  return std::all_of(assignment.seats.begin(), assignment.seats.end(), holds);
}

}  // namespace

bool has_seat(const RankAssignment& assignment, const HeldCompanion& companion) {
  return std::any_of(assignment.seats.begin(), assignment.seats.end(), [&](const Seat& seat) {
    return std::any_of(companion.nodes.begin(), companion.nodes.end(),
                       [&](const WorkerNode& node) { return node.id == seat.worker.node; });
  });
}

bool RunState::basic_train() const {
  return all_of(assignment, [this](const Seat& seat) {
    const WorkerState* worker = workers.find(seat.worker);
    return !companions.is_basic(seat.worker.node) || (worker != nullptr && worker->running);
  });
}

bool RunState::all_ended_well() const {
  return !assignment.seats.empty() && all_of(assignment, [this](const Seat& seat) {
    const WorkerState* worker = workers.find(seat.worker);
    return worker != nullptr && worker->ended_well;
  });
}

bool RunState::shims_are_there() const {
  return all_of(assignment, [this](const Seat& seat) {
    const WorkerState* worker = workers.find(seat.worker);
    return worker != nullptr && worker->present;
  });
}

bool RunState::are_ready(const RankAssignment& next) const {
  return all_of(next, [this](const Seat& seat) {
    const WorkerState* worker = workers.find(seat.worker);
    return worker != nullptr && worker->ready;
  });
}

bool RunState::covers(const RankAssignment& next) const {
  return all_of(next, [this](const Seat& wanted) {
    return std::any_of(assignment.seats.begin(), assignment.seats.end(),
                       [&](const Seat& seat) { return seat.worker == wanted.worker; });
  });
}

bool RunState::trains_on_lent() const {
  return std::any_of(
      companions.held().begin(), companions.held().end(),
      [this](const HeldCompanion& each) { return !each.reclaimed && takes_part(each); });
}

bool RunState::lent_took_part() const {
  return !all_of(assignment,
                 [this](const Seat& seat) { return companions.is_basic(seat.worker.node); });
}

bool RunState::waits_for_stragglers() const {
  bool have_stragglers = false, wait = false;
  for (const HeldCompanion& each : companions.held()) {
    if (each.reclaimed) continue;
    have_stragglers = have_stragglers || !each.up;
    wait = wait || (each.waits_until && !takes_part(each));
  }
  return have_stragglers && wait;
}

std::optional<double> RunState::drain_by() const {
  std::optional<double> by;
  for (const HeldCompanion& each : companions.held())
    if (each.reclaimed && takes_part(each)) by = std::min(by.value_or(kNever), each.leave_by);
  return by;
}

}  // namespace swell::launcher
