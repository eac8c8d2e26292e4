// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/messages.h"
#include "controller/held_gpus.h"
#include "controller/last_answer.h"
#include "controller/told_plan.h"
#include "controller/version.h"
#include "core/cluster/cluster.h"
#include "core/perf/profile.h"
#include "core/perf/stability.h"
#include "core/plan/layout.h"
#include "core/policy/measured_speeds.h"
#include "core/policy/training.h"
#include "core/policy/trust.h"

namespace swell::controller {

using policy::Speedup;

/// Observations of one job's program, and values for planners that follow from them. Pure; a copy
/// is cheap. Reports of users' programs are taken only where they can be true (plausible.h).
class JobTraining {
 public:
  /// Takes a report of what the GPUs `held` do, of which `basic` are the job's own. A refused
  /// report changes nothing; the error is a sentence for the job's owner.
  Result<void> take(const control::Profile& report, const HeldGpus& basic, const HeldGpus& held,
                    const cluster::Cluster& machines, const plan::Allocations& allocations = {});
  /// Whether the last report was refused for explaining too little of its steps, and no more: it
  /// is as good as none, but no false one.
  bool is_incomplete() const noexcept { return is_incomplete_; }
  /// The plan that was decided last for it.
  const ToldPlan& told() const noexcept { return told_; }
  ToldPlan& told() noexcept { return told_; }
  /// The plan that it runs, as far as is known: the one decided last where that runs, else the one
  /// reported last.
  std::optional<plan::Plan> plan_now() const;

  /// Whether the job could run `plan` on the GPUs that it holds, all that are lent and any of its
  /// own, as far as is known: without a report its program alone knows how many layers and samples
  /// there are.
  Result<void> check_plan(const plan::Plan& plan, const HeldGpus& basic, const HeldGpus& held,
                          const cluster::Cluster& machines,
                          const plan::Allocations& allocations = {}) const;

  /// Whether any report was taken.
  bool is_known() const noexcept { return is_object(adopted_); }
  /// The training as a policy's view has it; null where it is not known, or no plan over these GPUs
  /// can be found. The same object as long as nothing changed.
  std::shared_ptr<const policy::Training> seen(
      const HeldGpus& basic, const HeldGpus& all,
      const std::shared_ptr<const cluster::Cluster>& machines, planner::Consistency consistency,
      const plan::Allocations& allocations = {}) const;

  /// Returns the speed-up by the last report; nothing where the job was never seen on its own GPUs
  /// alone, or no GPUs are lent.
  const std::optional<Speedup>& speedup() const noexcept { return speedup_; }
  /// Samples a second, as reported last; 0: never.
  double rate() const noexcept { return current_ ? current_->rate : 0; }
  /// Seconds of a step, as reported last; 0: never.
  double step_s() const noexcept;
  /// GPUs of the plan that ran last; 0: none was reported.
  int gpus() const noexcept { return current_ ? current_->plan.gpu_count() : 0; }
  /// Solved from the last profile that changed them; null where none was.
  std::shared_ptr<const perf::Coefficients> coefficients() const noexcept {
    return solved_.coefficients;
  }

  /// For the state file. Reading a damaged entry is an error.
  Json to_json() const;
  static Result<JobTraining> from_json(const Json& json);
  friend bool operator==(const JobTraining& a, const JobTraining& b) {
    return a.version_ == b.version_ && a.told_.version() == b.told_.version();
  }

 private:
  /// One plan as it was seen to run.
  struct Observed {
    Json profile;
    plan::Plan plan;
    double rate = 0;
  };
  /// The speed of a plan that it ran. Plans of one shape are kept once.
  struct Ran {
    plan::Plan plan;
    double rate = 0;
    std::uint64_t shape = 0;  ///< perf::shape_of(); 0: not known since a restart of slurmctld
  };
  struct Solved {
    std::shared_ptr<const models::Model> model;
    std::shared_ptr<const perf::Coefficients> coefficients;
  };

  Result<perf::Profile> read(const Json& json, const cluster::Cluster& machines) const;
  Result<Solved> solve(const perf::Profile& profile, const cluster::Cluster& machines,
                       const plan::Allocations& allocations) const;
  plan::Plan as_planned(plan::Plan plan) const;
  std::optional<plan::Layout> layout_of(const plan::Plan& plan, const HeldGpus& basic,
                                        const HeldGpus& held,
                                        const cluster::Cluster& machines) const;
  void add_speed(const Observed& seen, const plan::Layout& layout);
  std::vector<policy::MeasuredSpeed> speeds(const cluster::Cluster& machines,
                                            const plan::Allocations& allocations) const;
  std::optional<Speedup> speedup_of(const Observed& now, const cluster::Cluster& machines,
                                    const plan::Allocations& allocations) const;

  Json adopted_;  ///< the profile that coefficients are solved from
  std::optional<Observed> basic_, current_;
  std::vector<Ran> ran_;  ///< at most MeasuredSpeed::kMax
  ToldPlan told_;
  std::optional<Speedup> speedup_;
  bool is_incomplete_ = false;
  Version version_;  ///< of all but `told_`

  perf::Stability recent_{2, 0.02};
  mutable Solved solved_;
  mutable std::vector<cluster::GpuType> solved_for_;
  mutable LastAnswer<policy::Training, std::shared_ptr<const cluster::Cluster>, HeldGpus, HeldGpus,
                     plan::Allocations, Version, Version>
      seen_;
};

}  // namespace swell::controller
