// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "control/messages.h"
#include "core/policy/view.h"
#include "slurm/records.h"

namespace swell::controller {

using control::JobId;

/// Reason told to an agent for a companion that Slurm shows as ended.
inline constexpr const char* kHasEnded = "it has ended";

/// An expansion of a job, as the controller knows it. Once it leaves, it never stays again; times
/// are seconds on the controller's clock.
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
  bool leaving = false;
  bool by_slurm = false;     ///< leaving because Slurm preempts it
  bool was_leaving = false;  ///< by_slurm, and the controller had taken it back before
  bool lost = false;         ///< leaving because it ended though nobody took it back
  bool failed = false;       ///< as its agent has said
  double deadline = 0;       ///< where leaving: when it is cancelled
  std::string reason;        ///< why it leaves, for people

  /// It is to end by `by`. If it leaves already, its reason stays, and its deadline if that is
  /// earlier.
  void leave(double by, const std::string& why);
  /// Slurm preempts it and ends it at `at`, whatever was planned, for a pending job; 0: nobody
  /// knows which. If it leaves already, its reason stays: Slurm often takes what the controller
  /// has asked for, for the same job.
  void preempted(double at, JobId needed_by);
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
  /// All that do not leave yet are to end by `by`.
  void leave(double by, const std::string& why);

  int lent_gpus() const noexcept;

 private:
  std::vector<Companion> companions_;
};

}  // namespace swell::controller
