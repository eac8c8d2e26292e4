// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/rank_profile.h"
#include "runtime/state/registry.h"

namespace swell::runtime {

/// Sums the registered state as perf::GroupObservation needs it. Tied tensors count once. If no
/// gradients are registered, they are assumed to be as large as the parameters, and sharded like
/// them. `peak_bytes` is raised to the registered bytes, which are allocated in any case.
profiler::RankProfile profile_of(const profiler::Role& role, const profiler::Times& times,
                                 int micro_batches, const std::vector<Entry>& entries,
                                 std::uint64_t peak_bytes);

}  // namespace swell::runtime
