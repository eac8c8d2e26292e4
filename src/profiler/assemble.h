// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "core/perf/profile.h"
#include "core/result.h"
#include "profiler/rank_profile.h"

namespace swell::profiler {

/// A rank's report, and its location.
struct PlacedRank {
  std::string node, gpu_type;  ///< the type may be empty: not known
  std::vector<int> gpus;       ///< indexes on the node
  RankProfile profile;
};

/// Returns the plan that these ranks train, from what each reports of its own part. The error names
/// what does not fit: a stage or group without ranks, a group with ranks on two nodes, a stage
/// whose ranks disagree on layers, chunks or TP degree, another number of samples than on other
/// stages, or chunks that do not form a model. Lists no chunks if each stage has one chunk and the
/// model is cut as plans without chunks cut it.
Result<plan::Plan> plan_of(const std::vector<PlacedRank>& ranks);

/// Makes the profile that perf::solve() takes from the reports of a running plan's ranks: times are
/// the mean over a TP group's ranks, bytes the maximum. Leaves out groups without a report. Returns
/// an error if a rank belongs to no group of the plan, if ranks disagree on the number of
/// micro-batches, or if there are no ranks.
Result<perf::Profile> assemble(const plan::Plan& plan, const std::vector<RankProfile>& ranks);

}  // namespace swell::profiler
