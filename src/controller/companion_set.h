// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "control/messages.h"
#include "controller/departure.h"
#include "core/policy/view.h"
#include "slurm/records.h"

namespace swell::controller {

using control::JobId;

/// Reason told to an agent for a companion that Slurm shows as ended.
inline constexpr const char* kHasEnded = "it has ended";

/// An expansion of a job, as the controller knows it. Times are seconds on the controller's clock.
struct Companion {
  JobId id = 0;
  std::string grant;  ///< the nonce it was created with
  std::string node;
  slurm::GpuRequest gpus;
  policy::Resources held;
  double since = 0;        ///< when Slurm's records first showed it
  int workers_before = 0;  ///< its job trained on so few since then
  bool used = false;       ///< its job has trained with it
  std::time_t ends = 0;    ///< when its time limit does, by Slurm's clock; 0: it has none
  bool suspended = false;
  bool failed = false;  ///< as its agent has said

  const Departure& departure() const noexcept { return departure_; }
  bool is_leaving() const noexcept { return departure_.has_begun(); }

 private:
  friend class Reclaimer;   ///< takes it back
  friend class Reconciler;  ///< sees in Slurm's records that it ends
  Departure departure_;
};

/// The companions of one job, by id.
class CompanionSet {
 public:
  bool empty() const noexcept { return companions_.empty(); }
  auto begin() noexcept { return companions_.begin(); }
  auto end() noexcept { return companions_.end(); }
  auto begin() const noexcept { return companions_.begin(); }
  auto end() const noexcept { return companions_.end(); }

  /// Null where there is none; good until the next add() or remove().
  Companion* find(JobId companion) noexcept;
  bool has_grant(const std::string& grant) const noexcept;
  /// REQUIRES: no companion of this id is there.
  Companion& add(Companion companion);
  void remove(JobId companion);

  int lent_gpus() const noexcept;

 private:
  std::vector<Companion> companions_;
};

}  // namespace swell::controller
