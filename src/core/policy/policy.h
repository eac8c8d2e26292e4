// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/perf/sends.h"
#include "core/policy/view.h"
#include "core/redeploy/redeployment.h"

namespace swell::policy {

/// Lend GPUs of one node to a job, as one companion.
struct Grant {
  JobId job = 0;
  NodeIndex node = -1;
  Resources lent;
  friend bool operator==(const Grant&, const Grant&) = default;
};

/// Take one companion back.
struct Reclaim {
  JobId job = 0;
  JobId companion = 0;
  JobId needed_by = 0;  ///< the pending job that it makes room for; 0: the job's sizes changed
  friend bool operator==(const Reclaim&, const Reclaim&) = default;
};

/// The plan a job shall run once its grants and reclaims are done. From a policy that replaces the
/// base scheduler: all GPUs the job shall have; no stages: back to the queue. For a job of which it
/// is not known what it trains (`training` null): one stage without layers, one group a GPU.
struct NewPlan {
  JobId job = 0;
  plan::Layout layout;
};

struct Decisions {
  std::vector<Grant> grants;
  std::vector<Reclaim> reclaims;
  std::vector<NewPlan> plans;  ///< at most one a job
  /// Every companion that holds GPUs of a known node, in the order in which the policy would take
  /// them back; where ClusterView::order_wanted.
  std::vector<JobId> reclaim_order;
  double search_s = 0;  ///< time that a search with a fixed budget takes, whatever it took here
};

/// What a policy decides over.
enum class Role {
  lends,  ///< expansions alone; Slurm starts jobs. The controller runs some of these
          ///< (policy_names())
  /// Who runs at all, and on which GPUs: rivals that only the simulator runs. Its views have one
  /// partition and no node lists; all that a running job has are its basic GPUs. Rigid jobs (no
  /// training known, or allowed no other size) are started like any; running ones stay as they are.
  replaces,
};

/// What only the simulator asks of a policy: how the system that the policy belongs to behaves.
struct SimulationTraits {
  Role role = Role::lends;
  double round_s = 0;  ///< between decisions; 0: whenever something changed
  /// Jobs that have just started (ElasticJobView::starting) are worth a decision.
  bool lends_at_start = false;
  perf::Sends sends = perf::Sends::ignored;  ///< what its predictions of throughput count
  redeploy::Method redeployment = redeploy::Method::local_reuse;  ///< how jobs move to another plan
};

/// Decides who is lent idle GPUs, and from whom they are reclaimed. The controller's views have no
/// ElasticJobView::training as long as no agent reports a profile: then `swell` and
/// `marginal-benefit` decide as `fewest-first` does, job by job (policy_without_profiles()).
/// Implementations are pure and thread-safe (a cache of pure results is no state): the live
/// controller and the simulator run the same object.
class Policy {
 public:
  virtual ~Policy() = default;
  /// Never grants GPUs that a job in `view.queue` could start on, nor more than is free; reclaims
  /// only companions in the view that are not leaving yet.
  virtual Decisions decide(const ClusterView& view) const = 0;
  virtual SimulationTraits simulation_traits() const noexcept { return {}; }
};

}  // namespace swell::policy
