// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/parameters.h"
#include "core/policy/rivals/allocation_program.h"
#include "core/policy/rivals/scaling_curve.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// Sia (Jayaram Subramanya et al., SOSP 2023), strong-scaling as Suika compares with it (section
/// 5.1, footnote 7): the batch size is the user's, hence goodput is throughput. Every round an
/// integer program gives each job one of its configurations; jobs start small and double from round
/// to round, may run with less than they asked for, and move by checkpoint. Hybrid-parallel jobs
/// scale by whole PP x TP cells. Decides nothing without ClusterView::machines. Thread-safe: caches
/// only pure results.
class Sia final : public SimulatedPolicy {
 public:
  struct Options {
    /// P: exponent of normalized throughputs; below 0 their sum is minimized.
    double fairness = -0.5;
    double queueing_penalty = 1.1;  ///< lambda_n: cost of each job without GPUs
    /// Growth limit: a job starts with one PP x TP cell and may have this many times the GPUs that
    /// it has trained on; 0: no limit.
    int growth = 2;
    double round_s = 60;
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 3> kParameters = {
      {{"fairness", &Options::fairness, -10, 10},
       {"queueing-penalty", &Options::queueing_penalty, 1},
       {"round", &Options::round_s, 1}}};
  Sia() : Sia(Options{}) {}
  explicit Sia(Options options) noexcept : options_(options) {}
  Decisions decide(const ClusterView& view) const override;
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

/// Returns Sia's restart factor: (T - N S) / (T + S) for a job of age T that restarted N times at S
/// seconds each; 1 until it is S seconds old.
double restart_factor(double age_s, int restarts, double restart_s) noexcept;

}  // namespace swell::policy
