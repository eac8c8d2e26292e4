// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/elastic_spec.h"
#include "control/server.h"
#include "control/tag.h"
#include "controller/companion_identity.h"
#include "core/policy/view.h"
#include "slurm/records.h"

namespace swell::controller {

using control::JobId;

/// An expansion of a job, as the controller knows it.
struct Companion {
  JobId id = 0;
  std::string grant;  ///< the nonce it was created with
  std::string node;
  slurm::GpuRequest gpus;
  policy::Resources held;
  double since = 0;  ///< when Slurm's records first showed it
  bool leaving = false;
  bool by_slurm = false;  ///< leaving because Slurm preempts it
  bool lost = false;      ///< leaving because it ended though nobody took it back
  double deadline = 0;    ///< where leaving: when it is cancelled
  std::string reason;     ///< why it leaves, for people
};

/// A running elastic job. Times are seconds on the controller's clock.
struct ElasticJob {
  JobId id = 0;
  uid_t uid = 0;
  std::time_t started = 0;  ///< tells a requeued job from its former run
  double first_seen = 0;
  control::ElasticSpec spec;
  int basic_gpus = 0;
  std::vector<Companion> companions;
  int grants = 0, reclaims = 0;
  control::JobState state = control::JobState::allocated;
  int epoch = 0;
  int workers = 0;
  int gpus_per_worker = 1;
  std::optional<control::ConnectionId> agent;
  double agent_seen = 0;  ///< last sign of life, or when it was lost
  double grow_after = 0;
  bool offered = false;     ///< offers were made, and none of them has become a companion yet
  int failed_growths = 0;   ///< in a row: each makes the next wait longer
  std::string no_growth;    ///< why its agent wants no GPUs now, as it said; empty: it does
  int refusals = 0;         ///< offers that became no companion
  std::string refused_for;  ///< the kind of the last of them, one word of refusals.h
  std::string written;      ///< AdminComment as last written or read

  int lent_gpus() const noexcept {
    int sum = 0;
    for (const Companion& companion : companions) sum += companion.gpus.count;
    return sum;
  }
  bool has_leaving() const noexcept {
    for (const Companion& companion : companions)
      if (companion.leaving) return true;
    return false;
  }
  Companion* find(JobId companion) noexcept {
    for (Companion& each : companions)
      if (each.id == companion) return &each;
    return nullptr;
  }
  CompanionIdentity identity(const Companion& companion) const {
    return {companion.id, id, uid, companion.grant};
  }
  /// What `scontrol show job` prints between swell[ and ].
  control::Tag tag() const;
};

using JobTable = std::map<JobId, ElasticJob>;

}  // namespace swell::controller
