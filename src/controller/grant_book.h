// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/mutex.h"
#include "control/messages.h"
#include "controller/shared_jobs.h"
#include "core/result.h"

namespace swell::controller {

using control::JobId;

/// A valid offer: which user may create which companion.
struct LiveGrant {
  control::Offer offer;
  JobId parent = 0;
  uid_t uid = 0;
  double expires = 0;  ///< on the controller's clock, seconds
  bool used = false;   ///< job_submit admitted a companion with this grant
  /// job_submit refused a companion with this grant. The grant is kept until the agent reports
  /// that, but its GPUs do not count as taken.
  bool refused = false;
  /// The companion's job id, as the agent first reported it; 0: take_named() has returned it.
  std::optional<JobId> companion;
};

/// The valid offers, in memory: the controller writes them, and job_submit/swell looks them up,
/// which runs under slurmctld's locks and must not wait. Thread-safe.
class GrantBook {
 public:
  void add(LiveGrant grant);
  void withdraw(const std::string& nonce);
  /// Withdraws the grants of a job that has ended or whose agent has left: nobody could use them.
  void withdraw_all(JobId parent);
  /// Removes and returns expired grants. Used ones expire later.
  std::vector<LiveGrant> take_expired(double now);
  /// Marks a grant used and returns it. The error says why it cannot be used.
  Result<LiveGrant> use(const std::string& nonce, uid_t uid, double now);
  /// Marks a grant refused: it cannot be used any more.
  void refuse(const std::string& nonce);
  /// Notes the job id that the agent reports for the companion of a used grant of its own job. Only
  /// the first report counts, since an agent could name any job.
  void name_companion(const std::string& nonce, JobId parent, JobId companion);
  /// Returns the grant whose companion the agent reported to be `companion`, at most once for each
  /// grant, so that each costs at most one query of Slurm's records.
  std::optional<LiveGrant> take_named(JobId parent, JobId companion);
  /// Returns a grant that was not withdrawn, used or not.
  std::optional<LiveGrant> find(const std::string& nonce) const;
  bool has_grant_of(JobId parent) const;
  /// Returns grants offered or being allocated: counted as taken until Slurm's records show them.
  std::vector<LiveGrant> outstanding() const;

  /// Returns whether job_submit has admitted a companion of this user that Slurm's records do not
  /// show yet. Its job id is not known then.
  bool has_unseen_companion_of(uid_t uid) const;

  /// The companions that Slurm's records show, so that job_modify can tell them from other jobs.
  SharedJobs& companions() noexcept { return companions_; }
  const SharedJobs& companions() const noexcept { return companions_; }
  /// The order in which companions would be reclaimed, for the select plugin, which reads it under
  /// slurmctld's locks.
  SharedJobs& reclaim_order() noexcept { return reclaim_order_; }
  const SharedJobs& reclaim_order() const noexcept { return reclaim_order_; }

 private:
  mutable Mutex mutex_;
  std::map<std::string, LiveGrant> grants_ SWELL_GUARDED_BY(mutex_);
  SharedJobs companions_, reclaim_order_;
};

}  // namespace swell::controller
