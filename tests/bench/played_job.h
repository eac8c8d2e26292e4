// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/rank_profile.h"
#include "sim/basic_plan.h"
#include "sim/truth.h"

namespace played {

/// A job of the simulator's workload, as `swell sim` drew and tuned it.
struct Spec {
  std::string model;
  int pp = 1, dp = 1, tp = 1, micro_batches = 1;  ///< degrees of its basic plan
  std::uint64_t seed = 1;
  std::uint32_t job = 1;
  double basic_s = 1;  ///< simulated seconds on its basic plan
};

/// The work of one rank under the plan of its generation.
struct Part {
  double iteration_s = 0;  ///< time of an iteration that the judge executes
  /// The values that a profiler would measure on the judge's hardware; nothing if the plan does not
  /// use the rank.
  std::optional<swell::profiler::RankProfile> profile;
};

/// The job on the judge's hardware. Each of its processes computes the same.
class Job {
 public:
  /// Returns an error if the model is unknown or has no such plan there.
  static swell::Result<Job> make(const Spec& spec, const swell::cluster::Cluster& cluster);

  double iterations() const noexcept { return iterations_; }
  /// Returns the part of rank `rank`, given the nodes of all ranks. `plan`: SWELL_PLAN, which also
  /// gives the order of ranks. Empty: the program chooses its plan, as simulated jobs do if the
  /// policy writes no plan: the basic plan, or on more GPUs the best symmetric one if that is
  /// expected to be faster. Returns an error if the plan is not valid for the model, or needs more
  /// memory than the GPUs have.
  swell::Result<Part> part(int rank, const std::vector<int>& node_of_rank, int basic_ranks,
                           const std::string& plan);

 private:
  Job(const Spec& spec, const swell::cluster::Cluster& cluster) : spec_(spec), cluster_(&cluster) {}
  swell::Result<swell::plan::Layout> layout_of(const std::vector<int>& node_of_rank,
                                               int basic_ranks, const std::string& plan);

  Spec spec_;
  const swell::cluster::Cluster* cluster_;
  std::unique_ptr<swell::sim::JobType> type_;
  std::unique_ptr<swell::sim::Truth> truth_;
  double iterations_ = 0;
};

}  // namespace played
