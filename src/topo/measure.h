// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/calibration.h"
#include "topo/link.h"

/// Measurement of bandwidth and latency between two processes: one serves, the other measures.
/// `data` is the measured link; the two agree over `control`, which may be the same link.
namespace swell::topo {

/// Returns the usual sizes of messages, in bytes: 8 to 16 MiB, each 8 times the previous one.
const std::vector<int>& message_sizes();
inline constexpr int kMaxMessageBytes = 16 << 20;

/// Serves measurements until the other side is done.
Result<void> serve(Link& control, Link& data);

/// Measures bandwidth and latency for each of `sizes` (1 to kMaxMessageBytes), each for about
/// `seconds`. Latency is half of a round trip.
Result<std::vector<cluster::MeasuredSize>> measure(Link& control, Link& data, double seconds,
                                                   const std::vector<int>& sizes = message_sizes());

/// Returns the figures of a distance class from those of its pairs, which all measured the same
/// sizes: medians, and the spread.
cluster::MeasuredClass summarize(int distance,
                                 const std::vector<std::vector<cluster::MeasuredSize>>& pairs);

/// Returns the largest bandwidth over all sizes; 0 if there are none.
double best_rate(const std::vector<cluster::MeasuredSize>& sizes) noexcept;

}  // namespace swell::topo
