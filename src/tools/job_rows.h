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
  /// Max GPUs in all, by --elastic and `swell max`; nothing: as many as pay.
  std::optional<int> max_gpus;
  std::string deadline;  ///< how it stands, in words; empty: there is none
  int wanted_gpus = 0;   ///< what it asked for, where it was submitted for fewer; 0: it was not
  int generation = 0, workers = 0, grants = 0, reclaims = 0;
  std::vector<control::CompanionWord> companions;
  std::optional<int> said_gpus;  ///< lent, as its AdminComment says; empty: it is right
  int refusals = 0;              ///< grants that became no companion
  std::string refused_for;       ///< reason of the last refusal, in one word: swell-elastic(7)
  /// How its last live switch went, for people; empty: there was none.
  std::string switched;
  std::string decided_by;   ///< "planned", "by data sheet", ...; empty: nothing was decided yet
  std::string decided_why;  ///< why so, for people
  std::string taken_back;   ///< why lent GPUs were taken back last, for people; empty: none were
  bool paused = false;      ///< by its owner
  /// Reason why it takes no more GPUs now, for people; empty: it takes more.
  std::string no_growth;
};

/// Filter of jobs; empty: all of them.
struct JobFilter {
  std::optional<uid_t> uid;
  std::vector<slurm::JobId> ids;
};

/// Elastic jobs that run or wait, by id. The error names a job of the filter that does not exist or
/// is not elastic.
Result<std::vector<JobRow>> job_rows(const slurm::Snapshot& snapshot, const JobFilter& filter);

/// Returns how many GPUs the job has and JobRow::max_gpus as tables show it: "12/16", or "12/-"
/// where there is no limit.
std::string total_text(const JobRow& row);

/// Line in place of a table without rows. Says whether slurmctld, where it answered, loads Swell.
std::string no_jobs_text(const Result<slurm::ControllerConfig>& slurmctld);
/// Table for people.
std::string jobs_table(const std::vector<JobRow>& rows);
/// JSON {"jobs": [...]}, as swell(1) describes.
Json jobs_json(const std::vector<JobRow>& rows);

}  // namespace swell::tools
