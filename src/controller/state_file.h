// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/messages.h"
#include "controller/job_training.h"
#include "controller/node_health.h"
#include "controller/submission_log.h"
#include "core/redeploy/pauses.h"
#include "core/result.h"

namespace swell::controller {

/// Terms of a grant: what Slurm then allocates is compared with them.
struct IssuedGrant {
  control::JobId parent = 0;
  std::string node, gpu_type, partition, qos;  ///< partition, qos empty: not compared
  int gpus = 0;                                ///< 0: not known
  int workers = 0, cpus = 0;
  std::int64_t memory_mib = 0;  ///< 0: Slurm's defaults decide

  friend bool operator==(const IssuedGrant&, const IssuedGrant&) = default;
};

/// Grants that stand or have become a companion, by nonce.
using IssuedGrants = std::map<std::string, IssuedGrant>;

/// Saved data of a running job: its agent's reports, and its owner's requests.
struct SavedJob {
  std::int64_t started = 0;  ///< tells a requeued job from its former run
  JobTraining training;
  bool paused = false;
  int own_max = 0;
  /// Companions with which it runs a plan of its owner's; empty: it runs none.
  std::vector<control::JobId> owners_plan;
  redeploy::Pauses pauses;

  friend bool operator==(const SavedJob&, const SavedJob&) = default;
};

/// Data that the controller needs after a crash and Slurm does not keep: which grants it issued to
/// which job, what it learnt of the jobs' training, where companions failed, and what was submitted
/// lately. With the grants a companion that started just before the crash is recognised, and one
/// that only claims to be one is not. Counters live in the jobs' AdminComment.
struct SavedState {
  IssuedGrants issued;
  std::map<control::JobId, SavedJob> jobs;
  NodeHealth health;
  SubmissionLog submissions;
  redeploy::ClusterPauses pauses;

  friend bool operator==(const SavedState&, const SavedState&) = default;
};

/// Writes the file anew and renames it into place, synced: after any crash the old or the new state
/// is there, whole.
Result<void> save_state(const std::string& path, const SavedState& state);

/// Reads it back. A file that does not exist gives an empty state; one without readable grants an
/// error, after which the caller goes on with an empty state. All else only advises: a part of it
/// that cannot be read is left out, with a sentence in `dropped`, one for each kind of part.
Result<SavedState> load_state(const std::string& path, std::vector<std::string>* dropped = nullptr);

}  // namespace swell::controller
