// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/config.h"
#include "controller/elastic_job.h"
#include "controller/grant_book.h"
#include "slurm/records.h"

namespace swell::controller {

/// GPUs that MaxLentByAccount and MaxLentByQOS leave to lend at one moment, and GPUs lent beyond
/// these limits. GPUs that are offered count as lent, as do those on their way back.
class Quotas {
 public:
  Quotas(const Config& config, const slurm::Snapshot& snapshot, const JobTable& jobs,
         const std::vector<LiveGrant>& outstanding);

  /// GPUs that the job may be lent on top of those it has; nothing: no limit holds for it.
  std::optional<int> room(JobId job) const;
  /// Lends `gpus` GPUs if the limits leave them; otherwise changes nothing. Returns whether it lent
  /// them.
  bool take(JobId job, int gpus);
  /// The limit that leaves the job nothing, as words for its owner; empty: none does.
  std::string why_full(JobId job) const;

  /// How many GPUs the jobs that share the job's limits have been lent too many, without those on
  /// their way back; 0: none.
  int excess(JobId job) const;
  /// Counts the GPUs of a companion that is reclaimed now as leaving.
  void leaves(JobId job, int gpus);

 private:
  struct Group {
    std::string words;  ///< "account physics"
    int max = 0;
    int lent = 0;     ///< with what is offered, and on its way back
    int staying = 0;  ///< of the companions that do not leave
  };
  void add(const char* kind, const std::string& name, const control::LentLimits& limits, JobId job);
  const std::vector<Group*>& groups_of(JobId job) const;

  std::map<std::string, Group> groups_;  ///< by Group::words
  std::map<JobId, std::vector<Group*>> groups_by_job_;
};

/// Whether a swell.conf has any such limit: without one nobody need count.
bool has_quotas(const Config& config);

}  // namespace swell::controller
