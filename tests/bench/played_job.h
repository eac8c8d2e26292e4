// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/rank_profile.h"
#include "sim/basic_plan.h"
#include "sim/truth.h"

namespace played {

/// A job of the simulator's workload: what `swell sim` drew and tuned.
struct Spec {
  std::string model;
  int pp = 1, dp = 1, tp = 1, micro_batches = 1;  ///< of its basic plan
  std::uint64_t seed = 1;
  std::uint32_t job = 1;
  double basic_s = 1;  ///< the simulator's seconds on its basic plan
};

/// The work of one rank under the plan of its epoch.
struct Part {
  double iteration_s = 0;  ///< as the judge executes the plan
  /// As the profiler would see it on the judge's hardware; nothing where the plan has no use for
  /// the rank.
  std::optional<swell::profiler::RankProfile> profile;
};

/// The job on the judge's hardware: each process of it knows the same.
class Job {
 public:
  /// An error: a model that is not known, or has no such plan there.
  static swell::Result<Job> make(const Spec& spec, const swell::cluster::Cluster& cluster);

  double iterations() const noexcept { return iterations_; }
  /// The part of rank `rank`, given the nodes of all ranks. `plan`: SWELL_PLAN, whose order ranks
  /// have; empty: the program chooses, as simulated ones do whose policy writes no plan: the basic
  /// plan, or on more GPUs the best symmetric one where that is expected to be faster. An error:
  /// the plan is none for the model, or needs more memory than the GPUs have.
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
