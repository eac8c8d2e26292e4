// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/step_reports.h"

namespace swell::launcher {

bool StepReports::take(WorkerId worker, const control::WorkerSteps& made) {
  const MadeSteps before = made_;
  if (made.total > 0) made_.total = static_cast<std::uint64_t>(made.total);
  if (worker.node == 0 && made.steps > 0) made_.made = static_cast<std::uint64_t>(made.steps);
  return before.total != made_.total || (before.made == 0 && made_.made > 0);
}

std::optional<LostTime::Cost> StepReports::take_time(WorkerId worker,
                                                     const control::WorkerSteps& made, double now) {
  if (worker.node != 0) return std::nullopt;
  const auto known = lost_.last();
  lost_.passed(now - made.age_s, made.generation, static_cast<std::uint64_t>(made.steps));
  return lost_.last() == known ? std::nullopt : lost_.last();
}

void StepReports::fill(control::Status& status) const {
  if (lost_.last()) {
    status.lost_generation = lost_.last()->generation;
    status.lost_s = lost_.last()->lost_s;
  }
  status.steps = static_cast<std::int64_t>(made_.made);
  status.total_steps = made_.total > 0 ? static_cast<std::int64_t>(made_.total) : steps_;
}

}  // namespace swell::launcher
