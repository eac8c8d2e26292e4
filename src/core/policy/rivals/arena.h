// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/parameters.h"
#include "core/policy/rivals/scaling_curve.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// Arena's scheduler (section 3.5, Algorithm 1). Jobs wait in P queues and are promoted as they
/// wait. Each step launches them in the queues' order, with up to D changes for each: the job
/// starts smaller or on another GPU type, or a running job gives up GPUs or changes its type. Then
/// up to D changes let jobs grow on idle GPUs. Each change is the one by which the objective loses
/// least or gains most for each GPU. A launched job runs until it ends. Sizes are powers of two and
/// what the job's user asked for, all on one type; plans are the best symmetric ones. Moves by
/// checkpoint. Decides nothing without ClusterView::machines. Thread-safe: caches only pure
/// results.
class Arena final : public SimulatedPolicy {
 public:
  struct Options {
    Objective objective = Objective::throughput;  ///< eq. 5 as printed: samples a second of all
    double queues = 3;                            ///< P
    double depth = 3;                             ///< D
    double promotion_s = 3600;  ///< a job that has waited this time goes to the next queue
    double migration_s = 3600;  ///< time between defragmentations; 0: there are none
    double min_gain = 0.1;      ///< share of its speed that a job must gain to grow or migrate
    double largest = 0;         ///< limit of a job's GPUs, or what it asks for if more; 0: none
    double round_s = 300;
    // Ablations of section 5.7: 0 leaves a component out.
    double heterogeneous = 1;  ///< whether the type of a job's GPUs may change
    double elastic = 1;        ///< whether their number may change
    double planner = 1;        ///< 0: decides by the speed that data parallelism alone would give
    double pruning = 1;        ///< 0: each change waits for a search of all plans
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 12> kParameters = {
      {{"objective", &Options::objective, 0, static_cast<double>(kObjectiveNames.size() - 1), true},
       {"queues", &Options::queues, 1, 100, true},
       {"depth", &Options::depth, 1, 100, true},
       {"promotion", &Options::promotion_s, 1},
       {"migration", &Options::migration_s},
       {"min-gain", &Options::min_gain, 0, 10},
       {"largest", &Options::largest, 0, 65536, true},
       {"round", &Options::round_s, 1},
       {"hetero", &Options::heterogeneous, 0, 1, true},
       {"elastic", &Options::elastic, 0, 1, true},
       {"planner", &Options::planner, 0, 1, true},
       {"pruning", &Options::pruning, 0, 1, true}}};
  Arena() : Arena(Options{}) {}
  explicit Arena(Options options) noexcept : options_(options) {}
  Decisions decide(const ClusterView& view) const override { return simulate(view); }
  SimulatedDecisions simulate(const ClusterView& view) const override;
  SimulationTraits simulation_traits() const noexcept override {
    return {.role = Role::replaces,
            .round_s = options_.round_s,
            .sends = perf::Sends::counted,
            .redeployment = redeploy::Method::checkpoint};
  }

 private:
  Options options_;
  mutable CurveCache curves_;
};

/// Returns the queue of a job that has waited for `waited_s`: it starts in the last of `queues`, as
/// traces have no priorities, and rises by one every `promotion_s`. 1 is served first.
int queue_after(double waited_s, int queues, double promotion_s) noexcept;

}  // namespace swell::policy
