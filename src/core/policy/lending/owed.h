// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/policy/lending/placement_state.h"

/// GPUs that Swell owes to jobs before any job is lent more than it wanted: first, to jobs that
/// consented to fewer GPUs than they wanted, the rest of these; then, to jobs with a deadline, the
/// GPUs that keep it.
namespace swell::policy {

/// Factor on the gain from GPUs that are owed to a job, and on the loss of such GPUs: larger than
/// the ratio of the gains of any two jobs.
inline constexpr double kOwed = 1e12;

/// Stands for the start of a job that is owed nothing, so that it comes after all jobs that are
/// owed some.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Added to the time left of a job with a deadline, which ranks it after the start of any job.
inline constexpr double kAfterStarts = 1e13;

/// Returns the total of GPUs that the job is owed; 0: it is owed none beyond its own.
inline int owed_total(const ElasticJobView& job) {
  return std::max(job.wanted_gpus, job.needed_gpus);
}

/// Returns the rank among the jobs that have fewer GPUs than they are owed, least first: the job's
/// start if it wants more, else its time left, after all starts. Least slack first would keep fewer
/// deadlines (docs/notebook/policy-notes.md). Returns kNever if it is owed nothing.
inline double owed_since(const ElasticJobView& job, int total) {
  if (total < job.wanted_gpus) return job.started_s;
  return total < job.needed_gpus ? kAfterStarts + job.left_s : kNever;
}

/// Total of GPUs up to which a job is owed more at one rank.
struct Owed {
  double since = kNever;  ///< see owed_since()
  int total = 0;
};

/// Returns the ranks at which a job with `total` GPUs is owed more, first to last. GPUs for its
/// deadline come at the deadline's rank, even if it has fewer than it wanted.
inline std::vector<Owed> owed_beyond(const ElasticJobView& job, int total) {
  std::vector<Owed> ranks;
  for (const int bound : {job.wanted_gpus, job.needed_gpus})
    if (total < bound) {
      ranks.push_back({owed_since(job, total), bound});
      total = bound;
    }
  return ranks;
}

/// Returns why others lose GPUs for a job that owed_since() ranks at `since`.
inline Reclaim::Why why_owed(double since) {
  if (since == kNever) return Reclaim::Why::another_job;
  return since < kAfterStarts / 2 ? Reclaim::Why::owed : Reclaim::Why::deadline;
}

/// Returns whether some of the companion's GPUs are among those that the job is owed, with
/// companions counted in the order in which it got them.
bool is_owed(const ElasticJobView& job, const CompanionView& companion);

/// Reclaims GPUs for `jobs`, in the order of owed_since(): what each is owed at its rank beyond
/// what is idle or already leaves. Takes them from the job that loses least, never what that job is
/// owed, and only if they suffice for a size that the owed job may have. They are lent once they
/// are idle. REQUIRES: PlacementState::close() has not run.
void reclaim_for_owed(PlacementState& placement, const std::vector<const ElasticJobView*>& jobs,
                      const PlacementState::Loss& loss);

}  // namespace swell::policy
