// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>

#include "control/messages.h"
#include "launcher/lost_time.h"
#include "launcher/program_socket.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// How far the training is and what its changes cost, by what its workers report of their steps,
/// for the controller's Status.
class StepReports {
 public:
  /// `steps`: those of the whole training, as its user said; 0: not known.
  explicit StepReports(std::int64_t steps) noexcept : steps_(steps) {}

  /// Takes a report. Where the training ends is said by rank 0 alone. @return whether the
  /// controller is to hear of it at once: the end is known before the first profile is, so that
  /// nothing is decided without it.
  bool take(WorkerId worker, const control::WorkerSteps& made);
  /// Takes its time, `now`: the last step of the job's first node says what changes cost, since
  /// that takes part in every generation. @return the cost of a change, where it is known now.
  std::optional<LostTime::Cost> take_time(WorkerId worker, const control::WorkerSteps& made,
                                          double now);
  /// A change has led to `generation`: see LostTime::changed().
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
