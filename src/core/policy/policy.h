// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/planner/row_filter.h"
#include "core/policy/view.h"

namespace swell::policy {

/// Lends GPUs of one node to a job, as one companion.
struct Grant {
  JobId job = 0;
  NodeIndex node = -1;
  Resources lent;
  /// Marginal benefit by which it is lent, to be kept with the companion; below 0: not known.
  double benefit = -1;
  friend bool operator==(const Grant&, const Grant&) = default;
};

/// Reclaims one companion.
struct Reclaim {
  JobId job = 0;
  JobId companion = 0;
  JobId needed_by = 0;  ///< pending job that gets the GPUs; 0: none, see `why`
  /// Reason if no pending job needs them.
  enum class Why : std::uint8_t {
    another_job,    ///< another elastic job gains more with them
    owed,           ///< another job is owed them: it consented to start with fewer
    deadline,       ///< another job keeps its deadline with them
    brings_little,  ///< they bring the job less than they should
    slows,          ///< by its profile the job is no faster with them
  } why = Why::another_job;
  friend bool operator==(const Reclaim&, const Reclaim&) = default;
};

/// Plan that a job should run once its grants and reclaims are done; a job with may_replan may get
/// one without either. From a simulated policy that replaces the base scheduler it covers all GPUs
/// of the job; without stages, the job goes back to the queue. For a job whose training is not
/// known (`training` null): one stage without layers, with one group for each GPU.
struct NewPlan {
  JobId job = 0;
  plan::Layout layout;
};

/// Job that is lent nothing now, since idle GPUs are unlikely to stay idle until its change of plan
/// has paid (FlexTrain, eq. 16).
struct Unlikely {
  JobId job = 0;
  int submissions = 0;  ///< those that ArrivalFilter counts
  double chance = 0;    ///< see chance_to_pay()
};

/// State of a job's deadline.
struct DeadlineState {
  JobId job = 0;
  /// Slack: seconds between the job's end at its present speed and the deadline; nothing: its
  /// profile or its remaining steps are not known.
  std::optional<double> slack_s;
  int needed_gpus = 0;  ///< fewest GPUs in all that keep it; 0: no allowed number does
};

struct Decisions {
  std::vector<Grant> grants;
  std::vector<Reclaim> reclaims;
  std::vector<NewPlan> plans;            ///< at most one a job
  std::vector<Unlikely> unlikely;        ///< reported to the jobs' owners
  std::vector<DeadlineState> deadlines;  ///< reported to the jobs' owners, too
  /// Every companion that holds GPUs of a known node, in the order in which the policy would
  /// reclaim them; filled if ClusterView::order_wanted is set.
  std::vector<JobId> reclaim_order;
};

/// Decides which jobs are lent idle GPUs, and from which these are reclaimed. The controller's
/// views have no ElasticJobView::training for jobs whose agent has reported no profile: for those,
/// `swell` and `marginal-benefit` decide as `fewest-first` does (policy_without_profiles()).
/// Implementations are pure and thread-safe (they may cache pure results): the live controller and
/// the simulator run the same object, the latter inside a SimulatedPolicy
/// (rivals/simulated_policy.h).
class Policy {
 public:
  virtual ~Policy() = default;
  /// Never grants GPUs that a job in `view.queue` could start on, nor more than is free; reclaims
  /// only companions in the view that are not leaving yet.
  virtual Decisions decide(const ClusterView& view) const = 0;
  /// Returns the rules by which it leaves out rows of scale tables.
  virtual planner::RowFilter row_filter() const noexcept { return {}; }
};

}  // namespace swell::policy
