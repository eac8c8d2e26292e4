// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>

#include "control/messages.h"
#include "launcher/lost_time.h"
#include "launcher/program_socket.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// Derives how far the training is and what its changes cost from what its workers report of their
/// steps, for the controller's Status.
class StepReports {
 public:
  /// `steps`: those of the whole training, as its user said; 0: not known.
  explicit StepReports(std::int64_t steps) noexcept : steps_(steps) {}

  /// Takes a report. Only rank 0 reports the last step of the training. @return whether the
  /// controller must be told at once: it must know that step before the first profile, so that it
  /// decides nothing without it.
  bool take(WorkerId worker, const control::WorkerSteps& made);
  /// Takes the report's time, `now`. Costs follow from the steps of the job's first node, which
  /// takes part in every generation. @return the cost of a change, if it has become known now.
  std::optional<LostTime::Cost> take_time(WorkerId worker, const control::WorkerSteps& made,
                                          double now);
  /// Notes a change to `generation`: see LostTime::changed().
  void changed(double began, int generation, std::uint64_t stopped_at) {
    lost_.changed(began, generation, stopped_at);
  }
  void fill(control::Status& status) const;

 private:
  const std::int64_t steps_;
  LostTime lost_;
  MadeSteps made_;  ///< by the running program, as far as is known
};

}  // namespace swell::launcher
