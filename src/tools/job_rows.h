// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/tag.h"
#include "core/json.h"
#include "slurm/records.h"

namespace swell::tools {

/// One elastic job as `swell jobs` shows it: what Slurm's record and its AdminComment say.
struct JobRow {
  slurm::JobId id = 0;
  std::string user, name;
  std::string state;  ///< Swell's (ACTIVE, WARMING, ...) while it runs, else Slurm's
  std::string spec;   ///< the recorded --elastic
  int basic_gpus = 0, lent_gpus = 0, max_gpus = 0;
  int epoch = 0, workers = 0, grants = 0, reclaims = 0;
  std::vector<control::CompanionWord> companions;
  int refusals = 0;         ///< grants that became no companion
  std::string refused_for;  ///< why the last of them did not, in one word: swell-elastic(7)
  std::string no_growth;    ///< why it takes no more GPUs now, for people; empty: it does
};

/// Which jobs to show. Empty: no restriction.
struct JobFilter {
  std::optional<uid_t> uid;
  std::vector<slurm::JobId> ids;
};

/// The elastic jobs that run or wait, by id. The error names a job of the filter that there is not,
/// or that is not elastic.
Result<std::vector<JobRow>> job_rows(const slurm::Snapshot& snapshot, const JobFilter& filter);

/// The table for people; one line where there is nothing to show.
std::string jobs_table(const std::vector<JobRow>& rows);
/// {"jobs": [...]}, as swell(1) describes.
Json jobs_json(const std::vector<JobRow>& rows);

}  // namespace swell::tools
