// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/policy/lending/room.h"
#include "core/policy/lending/scale_tables.h"

namespace swell::policy {

/// Suika's B, section 3.2.3: what `more` GPUs add to a job that has `have`, relative to what they
/// would add if it scaled linearly.
inline double marginal_benefit(int have, int more, double before, double after) {
  return static_cast<double>(have) / more * (after - before) / before;
}

/// The benefit of going from `have` to `all` GPUs as one doubling of the same scaling has it: the
/// same for one large step as for the small ones that it is made of.
double benefit_of_a_doubling(int have, int all, double before, double after);

/// A running job with a profile, while a decision is worked out: what it would run after the grants
/// so far. `job` is null for none.
struct Runner {
  const ElasticJobView* job = nullptr;
  plan::Layout layout;
  int total = 0;                            ///< GPUs it holds, with those of this decision
  double throughput = 0;                    ///< predicted for `layout`
  std::map<NodeIndex, plan::GpuMask> lent;  ///< by this decision
};

/// A job's next `gpus` GPUs: the first of its scale table. Row 0 is what it has.
struct Expansion {
  Scaling scaling;
  std::size_t row = 0;
  int gpus = 0;
  double throughput = 0;  ///< with them
};

/// Which idle GPUs which profiled job could be lent, and what for: Suika's getBestRsAndThps() over
/// the room that is left. Lending changes the room and the runner alone; the decision is made of
/// the final state (batch reconfiguration, Suika 3.2.3).
class Expansions {
 public:
  Expansions(Room& room, const ScaleTables& tables);

  /// Jobs that could be planned for: profiled, with known GPUs.
  std::vector<Runner>& runners() noexcept { return runners_; }
  const std::vector<Runner>& runners() const noexcept { return runners_; }
  static bool can_plan(const ElasticJobView& job, const ClusterView& view);

  /// Every prefix that the job may have, as it lies now, with at most `max` GPUs.
  std::vector<Expansion> offers(const Runner& runner, int max);
  /// Lends what an offer, made since the last change, says.
  void lend(Runner& runner, const Expansion& offer);
  /// Offers from now on count what a companion holds as idle.
  void imagine_idle(const CompanionView& companion);
  /// Raised by lend().
  long changes() const noexcept { return changes_; }

  /// Grants and new plans of all runners.
  void write(Decisions& decisions) const;
  /// The longest that a search for one of the offers looked at went on: plans evaluated; and
  /// whether one of them ended before it was done.
  long max_evaluated() const noexcept { return max_evaluated_; }
  bool ran_out() const noexcept { return ran_out_; }

 private:
  std::vector<cluster::GpuRef> offered(const ElasticJobView& job) const;

  Room& room_;
  const ScaleTables& tables_;
  std::vector<plan::GpuMask> idle_;  ///< by node
  std::vector<Runner> runners_;
  long changes_ = 0;
  long max_evaluated_ = 0;
  bool ran_out_ = false;
};

/// GPUs of a job's companions that stay.
std::vector<cluster::GpuRef> lent_gpus(const ElasticJobView& job, const Room& room);

/// What the companions of a job bring, in the order in which it got them, from its basic plan on.
struct Step {
  const CompanionView* companion = nullptr;
  int have = 0;       ///< GPUs before
  double before = 0;  ///< samples a second
  double after = 0;
  double benefit = 0;  ///< see benefit_of_a_doubling()
};
/// `tables` must reach as far as the job has grown.
std::vector<Step> steps(const ElasticJobView& job, const ScaleTables& tables,
                        const ClusterView& view);

/// The plans of jobs that give something back, on what stays with them.
void write_shrunk(const Room& room, const ScaleTables& tables, Decisions& decisions);

}  // namespace swell::policy
