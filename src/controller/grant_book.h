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
  bool used = false;   ///< job_submit admitted a companion on it
  /// job_submit refused a companion on it: it stands until the agent has said so, but holds nothing
  bool refused = false;
  /// The job on it, as its agent named it first; 0: it was looked at.
  std::optional<JobId> companion;
};

/// Where the controller writes its offers and job_submit/swell looks them up, in memory: job_submit
/// runs under slurmctld's locks and may not ask anybody. Thread-safe.
class GrantBook {
 public:
  void add(LiveGrant grant);
  void withdraw(const std::string& nonce);
  /// Withdraws the grants of a job that has ended or whose agent has left: nobody could use them.
  void withdraw_all(JobId parent);
  /// Takes out expired grants; used ones stay a while longer, until they are withdrawn.
  std::vector<LiveGrant> take_expired(double now);
  /// Marks a grant used and returns it. The error says why it cannot be used.
  Result<LiveGrant> use(const std::string& nonce, uid_t uid, double now);
  /// Marks a grant refused: it cannot be used any more.
  void refuse(const std::string& nonce);
  /// Takes the agent's word of which job is the companion on a grant of its own job that was used.
  /// The first word counts: an agent may name any job.
  void name_companion(const std::string& nonce, JobId parent, JobId companion);
  /// The grant whose companion was named so; once, so that each costs one look at Slurm's records.
  std::optional<LiveGrant> take_named(JobId parent, JobId companion);
  /// A grant that stands, used or not.
  std::optional<LiveGrant> find(const std::string& nonce) const;
  bool has_grant_of(JobId parent) const;
  /// Returns grants offered or being allocated: counted as taken until Slurm's records show them.
  std::vector<LiveGrant> outstanding() const;

  /// Has a companion of this user been admitted that Slurm's records have not shown yet? Its job id
  /// is not known then.
  bool has_unseen_companion_of(uid_t uid) const;

  /// The companions that Slurm's records show, so that job_modify can tell them from other jobs.
  SharedJobs& companions() noexcept { return companions_; }
  const SharedJobs& companions() const noexcept { return companions_; }
  /// In which order companions would be reclaimed: for the select plugin, which asks under
  /// slurmctld's locks.
  SharedJobs& reclaim_order() noexcept { return reclaim_order_; }
  const SharedJobs& reclaim_order() const noexcept { return reclaim_order_; }

 private:
  mutable Mutex mutex_;
  std::map<std::string, LiveGrant> grants_ SWELL_GUARDED_BY(mutex_);
  SharedJobs companions_, reclaim_order_;
};

}  // namespace swell::controller
