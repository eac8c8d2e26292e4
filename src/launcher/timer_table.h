// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

namespace swell::launcher {

/// The timers of an object. Each says when it is due, derived from the object's state, and what is
/// done then. A timer need not be stopped: it is not due any more when the state has changed.
template <typename Owner>
class TimerTable {
 public:
  struct Timer {
    /// Returns when the timer is due; none: it does not run.
    std::optional<double> (*due)(const Owner& owner);
    /// Changes the state so that the timer is not due any more, or is due later.
    void (*fire)(Owner& owner, double now);
  };

  TimerTable(std::initializer_list<Timer> timers) : timers_(timers) {}

  /// Returns when the first timer is due; none: no timer runs.
  std::optional<double> deadline(const Owner& owner) const {
    std::optional<double> first;
    for (const Timer& each : timers_)
      if (const auto due = each.due(owner); due && (!first || *due < *first)) first = due;
    return first;
  }
  /// Fires the timers that are due, in the order of the table. A timer sees what earlier ones have
  /// done.
  void fire_due(Owner& owner, double now) const {
    for (const Timer& each : timers_)
      if (const auto due = each.due(owner); due && now >= *due) each.fire(owner, now);
  }

 private:
  std::vector<Timer> timers_;
};

}  // namespace swell::launcher
