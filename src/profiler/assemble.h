// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "core/perf/profile.h"
#include "core/result.h"
#include "profiler/rank_profile.h"

namespace swell::profiler {

/// A rank's report, and where it runs.
struct PlacedRank {
  std::string node, gpu_type;  ///< the type may be empty: not known
  std::vector<int> gpus;       ///< indexes on the node
  RankProfile profile;
};

/// The plan that these ranks train, by what each says of its own part. An error names what does not
/// fit: a stage or group of which no rank is there, ranks of a group on two nodes, stages whose
/// ranks disagree on layers, chunks or TP degree, samples that are not the same on every stage,
/// chunks that are of no model. Lists no chunks where each stage has one, as plans without chunks
/// cut the model.
Result<plan::Plan> plan_of(const std::vector<PlacedRank>& ranks);

/// The profile that perf::solve() takes, of what the ranks of a running plan report: times are the
/// mean of a TP group's ranks, bytes the largest. Groups of which no rank has reported are left
/// out. An error: a rank of a group that the plan does not have, or of another number of
/// micro-batches, or no rank at all.
Result<perf::Profile> assemble(const plan::Plan& plan, const std::vector<RankProfile>& ranks);

}  // namespace swell::profiler
