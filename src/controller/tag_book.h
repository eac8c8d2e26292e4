// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "controller/admission.h"
#include "slurm/records.h"

namespace swell::controller {

/// The tags of all jobs, pending ones too, as Slurm's records showed them last: so that job_modify
/// keeps them where somebody writes an AdminComment of his own. Thread-safe.
class TagBook {
 public:
  void look(const std::vector<slurm::JobRecord>& jobs);
  /// The controller has written this AdminComment since the last look.
  void wrote(JobId job, const std::string& admin_comment);
  /// Returns the AdminComment that a change should write: the new one with the job's tag. Nothing:
  /// it writes none, it has a tag itself, or the job has none.
  std::optional<std::string> kept_in(const ChangeRequest& change) const;

 private:
  struct Entry {
    JobId job = 0;
    std::string admin_comment;
  };
  mutable Mutex mutex_;
  std::vector<Entry> entries_ SWELL_GUARDED_BY(mutex_);  ///< in the order of their jobs
};

}  // namespace swell::controller
