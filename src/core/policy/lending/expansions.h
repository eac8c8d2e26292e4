// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/policy/lending/belief.h"
#include "core/policy/lending/placement_state.h"
#include "core/policy/lending/scale_tables.h"

namespace swell::policy {

/// Returns the marginal benefit, Suika's B, section 3.2.3: what GPUs of size `more` add to a job
/// that has `have`, relative to what they would add with linear scaling. Sizes are those of
/// GpuSizes; `before`, `after`: samples a second.
inline double marginal_benefit(double have, double more, double before, double after) {
  return have / more * (after - before) / before;
}

/// Returns the benefit of going from size `have` to `all`, as the benefit of one doubling with the
/// same scaling exponent: one large step and the small steps in it then have equal benefit.
double benefit_of_a_doubling(double have, double all, double before, double after);

/// A running job with a profile, as it would run after the grants decided so far. `job` is null if
/// there is no runner.
struct Runner {
  const ElasticJobView* job = nullptr;
  plan::Layout layout;
  int total = 0;                            ///< GPUs that it holds, with those of this decision
  double throughput = 0;                    ///< expected with `layout`
  std::map<NodeIndex, plan::GpuMask> lent;  ///< GPUs lent by this decision
  /// Sum over each node's lent GPUs of the benefit by which they are lent; empty: not recorded.
  std::map<NodeIndex, double> benefit;
};

/// An offer of a job's next `gpus` GPUs, the first ones of its scale table. Row 0 is what it has.
struct Expansion {
  Scaling scaling;
  std::size_t row = 0;
  int gpus = 0;
  double throughput = 0;  ///< samples a second with them
};

/// Offers of idle GPUs to profiled jobs: Suika's getBestRsAndThps() over what is left.
/// Lending changes only the placement state and the runner; the decision is made from the final
/// state (batch reconfiguration, Suika 3.2.3).
class Expansions {
 public:
  /// `effort`: limits the tables that offers() makes; null: no limit. `belief`: gives each job's
  /// tables and throughputs in place of `tables`; null: none. Both outlive the object. `filter`:
  /// removes rows from offers().
  Expansions(PlacementState& placement, const ScaleTables& tables, Effort* effort = nullptr,
             const Belief* belief = nullptr, const planner::RowFilter& filter = {});

  /// Returns the jobs that can grow and be planned for.
  std::vector<Runner>& runners() noexcept { return runners_; }
  const std::vector<Runner>& runners() const noexcept { return runners_; }
  /// Returns whether the job has a profile and all its GPUs are known by index.
  static bool can_plan(const ElasticJobView& job, const ClusterView& view);

  /// Returns all prefixes of the GPUs in the runner's scale table that the job may have, with at
  /// most `max` GPUs, in the present placement state, without rows that the filter removes. The
  /// first offer is what the runner has, at the speed that is expected of it.
  std::vector<Expansion> offers(const Runner& runner, int max, Care care = Care::quick);
  /// Lends the GPUs of `offer`, and records `benefit` with them unless it is below 0. REQUIRES: the
  /// offer was made after the last change.
  void lend(Runner& runner, const Expansion& offer, double benefit = -1);
  /// Keeps the node's lowest `gpus` idle GPUs out of later offers: that many are lent without being
  /// named, and Slurm takes the lowest first. Leaves the placement state as it is.
  void set_aside(NodeIndex node, int gpus);
  /// Makes later offers count what a companion holds as idle.
  void imagine_idle(const CompanionView& companion);
  /// Returns the number of calls of lend(), which tells whether an offer is out of date.
  long changes() const noexcept { return changes_; }

  /// Writes the grants and new plans of all runners.
  void write(Decisions& decisions) const;
  /// Returns the number of plans evaluated by the longest search for an offer.
  long max_evaluated() const noexcept { return max_evaluated_; }
  /// Returns whether a search for an offer ended before it was done.
  bool ran_out() const noexcept { return ran_out_; }

 private:
  std::vector<cluster::GpuRef> offered(const ElasticJobView& job) const;
  void leave_out_rows(const Runner& runner, std::vector<Expansion>& offers) const;

  PlacementState& placement_;
  const ScaleTables& tables_;
  Effort* effort_;
  const Belief* belief_;
  planner::RowFilter filter_;
  std::vector<plan::GpuMask> idle_;  ///< idle GPUs of each node
  std::vector<Runner> runners_;
  long changes_ = 0;
  long max_evaluated_ = 0;
  bool ran_out_ = false;
};

/// Returns whether the layout uses any of the node's `gpus`.
bool uses(const plan::Layout& layout, NodeIndex node, plan::GpuMask gpus);

/// Returns the GPUs of the companions that the job keeps.
std::vector<cluster::GpuRef> lent_gpus(const ElasticJobView& job, const PlacementState& placement);

/// Returns a job that is lent nothing under a faster plan on its own GPUs: with other chunks, or
/// under another schedule (planner::ScaleTable::again); nothing if there is none. `effort`: as
/// above. REQUIRES: `belief` knows the job.
std::optional<Runner> rescheduled(const ElasticJobView& job, const PlacementState& placement,
                                  const Belief& belief, Effort* effort);

/// Contribution of one companion to its job, with companions counted from the basic plan on in the
/// order in which the job got them.
struct Step {
  const CompanionView* companion = nullptr;
  int have = 0;        ///< GPUs before the companion
  double before = 0;   ///< samples a second without the companion
  double after = 0;    ///< samples a second with it
  double benefit = 0;  ///< see benefit_of_a_doubling()
};
/// Returns one step for each companion that stays; none if the job cannot be planned for. REQUIRES:
/// `tables` reach the size to which the job has grown.
std::vector<Step> steps(const ElasticJobView& job, const ScaleTables& tables,
                        const ClusterView& view);

/// Writes the plans of jobs that lose companions, on the GPUs that they keep. `belief`: as above.
void write_shrunk(const PlacementState& placement, const ScaleTables& tables, Decisions& decisions,
                  const Belief* belief = nullptr);

}  // namespace swell::policy
