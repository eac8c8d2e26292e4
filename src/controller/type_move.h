// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <string>

#include "slurm/records.h"

namespace swell::controller {

/// A running job's move to another GPU type: from the decision until it runs again. It is not
/// saved: after a restart of slurmctld, a job that has not been requeued trains on where it is, and
/// one that has been waits like any other.
struct TypeMove {
  enum class Phase {
    clearing,  ///< its lent GPUs go back
    leaving,   ///< its workers save and leave
    requeued,  ///< it ends, and waits to start again
  };
  Phase phase = Phase::clearing;
  std::string from, to;     ///< GPU types
  std::string why;          ///< for people
  std::time_t started = 0;  ///< start of the run that is to leave
  double began = 0;         ///< these two on the controller's clock
  double by = 0;            ///< when this phase is given up; requeued: when it is looked at again
  double requeued_at = 0;   ///< requeued: since when
  std::int64_t order = 0;   ///< leaving: that of its Requeue
  double asked_at = 0;      ///< requeued: when it was made to ask for its type; 0: not yet
  /// The record of the job once it waits for GPUs of `to`, which are set aside until it waits.
  slurm::JobRecord demand;

  /// Whether Slurm's queue does not show the demand itself.
  bool is_set_aside(const slurm::JobRecord* record) const noexcept {
    return record == nullptr || record->phase != slurm::JobPhase::pending ||
           record->waiting != slurm::Waiting::for_resources;
  }
};

using TypeMoves = std::map<slurm::JobId, TypeMove>;

}  // namespace swell::controller
