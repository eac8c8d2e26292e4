// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <vector>

#include "core/perf/sends.h"
#include "core/policy/policy.h"
#include "core/redeploy/redeployment.h"

namespace swell::policy {

/// Scope of a policy's decisions.
enum class Role {
  /// Decides only expansions; Slurm starts jobs. The controller runs those of policy_names().
  lends,
  /// Decides which jobs run, and on which GPUs: rivals that only the simulator runs. The views have
  /// one partition and no node lists; a running job has only basic GPUs. Rigid jobs (training not
  /// known, or no other size allowed) are started like others; running ones stay as they are.
  replaces,
};

/// How the system that a policy belongs to behaves.
struct SimulationTraits {
  Role role = Role::lends;
  double round_s = 0;  ///< time between decisions; 0: decides whenever something changed
  /// Whether it decides for jobs that have just started (ElasticJobView::starting), if it sees
  /// them. slurmctld shows it those that are planned by data sheets (Training).
  bool lends_at_start = false;
  /// Whether predicted throughput counts sends between stages.
  perf::Sends sends = perf::Sends::ignored;
  redeploy::Method redeployment = redeploy::Method::local_reuse;  ///< how jobs move to another plan
  /// Whether jobs that consent to fewer GPUs are submitted for fewer, with what they want in
  /// ElasticJobView::wanted_gpus. Otherwise they ask for all that they want, as others do.
  bool honours_consent = false;
  /// How slurmctld lends by a policy that it runs.
  enum class Slurmctld {
    none,  ///< it does not: a job with a profile may be lent GPUs at any time
    /// GrowthInterval and GrantExpiry hold, and jobs without a profile are lent GPUs without a
    /// plan.
    as_it_starts,
    after_profile_wait,  ///< the same, once the job has run for ProfileWait
  } slurmctld = Slurmctld::none;
};

/// Moves the basic allocation of a job without companions to idle GPUs, where it runs its basic
/// plan. Slurm cannot do this.
struct Migration {
  JobId job = 0;
  JobId needed_by = 0;  ///< pending job that gets the GPUs
  plan::Layout layout;  ///< basic plan on the new GPUs
};

/// Decisions with what only the simulator carries out.
struct SimulatedDecisions : Decisions {
  std::vector<Migration> migrations;
  /// Simulated time of a search with a fixed budget, whatever time it took on this machine.
  double search_s = 0;
};

/// A policy as the simulator runs it. slurmctld loads only Policy.
class SimulatedPolicy : public Policy {
 public:
  virtual SimulationTraits simulation_traits() const noexcept { return {}; }
  /// Decides like decide(); most policies have only that function.
  virtual SimulatedDecisions simulate(const ClusterView& view) const {
    return {decide(view), {}, 0};
  }
};

/// A policy of slurmctld's in the simulator.
class Lender final : public SimulatedPolicy {
 public:
  Lender(std::unique_ptr<const Policy> policy, SimulationTraits traits) noexcept
      : policy_(std::move(policy)), traits_(traits) {}
  Decisions decide(const ClusterView& view) const override { return policy_->decide(view); }
  SimulationTraits simulation_traits() const noexcept override { return traits_; }
  planner::RowFilter row_filter() const noexcept override { return policy_->row_filter(); }

 private:
  std::unique_ptr<const Policy> policy_;
  SimulationTraits traits_;
};

}  // namespace swell::policy
