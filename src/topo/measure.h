// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/calibration.h"
#include "topo/link.h"

/// Bandwidth and latency between two processes: one serves, the other measures. `data` is what is
/// measured; what both have to tell each other goes over `control`, which may be the same.
namespace swell::topo {

/// The usual sizes of messages, in bytes: 8 to 16 MiB, a factor of 8 apart.
const std::vector<int>& message_sizes();
inline constexpr int kMaxMessageBytes = 16 << 20;

/// Answers until the other side is done.
Result<void> serve(Link& control, Link& data);

/// About `seconds` for each size (from 1 to kMaxMessageBytes) and each of bandwidth and latency.
/// Latency is half of a round trip.
Result<std::vector<cluster::MeasuredSize>> measure(Link& control, Link& data, double seconds,
                                                   const std::vector<int>& sizes = message_sizes());

/// A class's figures from those of its pairs, each of which measured the same sizes: medians, and
/// the spread.
cluster::MeasuredClass summarize(int distance,
                                 const std::vector<std::vector<cluster::MeasuredSize>>& pairs);

/// The greatest bandwidth over all sizes; 0 where there are none.
double best_rate(const std::vector<cluster::MeasuredSize>& sizes) noexcept;

}  // namespace swell::topo
