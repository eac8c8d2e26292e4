// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/tag.h"
#include "core/json.h"
#include "core/result.h"
#include "slurm/live_slurm.h"
#include "slurm/records.h"

namespace swell::tools {

/// One elastic job as `swell jobs` shows it: from Slurm's record and its AdminComment.
struct JobRow {
  slurm::JobId id = 0;
  std::string user, name;
  std::string state;  ///< Swell's (ACTIVE, WARMING, ...) while it runs, otherwise Slurm's
  std::string spec;   ///< the recorded --elastic
  int basic_gpus = 0, lent_gpus = 0;
  /// Maximum GPUs in all, by --elastic and `swell max`; nullopt: as many as pay.
  std::optional<int> max_gpus;
  std::string deadline;  ///< its state in words; empty: there is no deadline
  int wanted_gpus = 0;   ///< GPUs asked for, if submitted for fewer; 0: it was not
  int generation = 0, workers = 0, grants = 0, reclaims = 0;
  std::vector<control::CompanionWord> companions;
  std::optional<int> said_gpus;  ///< lent GPUs in its AdminComment, if these are wrong
  int refusals = 0;              ///< grants that did not become companions
  std::string refused_for;       ///< reason of the last refusal, in one word: swell-elastic(7)
  /// The result of its last live switch, for people; empty: there was none.
  std::string switched;
  std::string decided_by;   ///< "planned", "by data sheet", ...; empty: nothing was decided yet
  std::string decided_why;  ///< why, for people
  std::string taken_back;   ///< why lent GPUs were taken back last, for people; empty: none were
  bool paused = false;      ///< its owner has paused it
  /// Reason why it takes no more GPUs now, for people; empty: it takes more.
  std::string no_growth;
};

/// Filter of jobs; empty: all of them.
struct JobFilter {
  std::optional<uid_t> uid;
  std::vector<slurm::JobId> ids;
};

/// Returns the elastic jobs that run or wait, by id. The error names a job of the filter that does
/// not exist or is not elastic.
Result<std::vector<JobRow>> job_rows(const slurm::Snapshot& snapshot, const JobFilter& filter);

/// Returns how many GPUs the job has and JobRow::max_gpus as tables show them: "12/16", or "12/-"
/// if there is no limit.
std::string total_text(const JobRow& row);

/// Returns the line for an empty table. Says whether slurmctld, if it answered, loads Swell.
std::string no_jobs_text(const Result<slurm::ControllerConfig>& slurmctld);
/// Returns a table for people.
std::string jobs_table(const std::vector<JobRow>& rows);
/// Returns JSON {"jobs": [...]}, as swell(1) describes.
Json jobs_json(const std::vector<JobRow>& rows);

}  // namespace swell::tools
