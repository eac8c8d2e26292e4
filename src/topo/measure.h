// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/calibration.h"
#include "topo/link.h"

/// Measurement of bandwidth and latency between two processes: one serves, the other measures.
/// `data` is the link measured; the two agree over `control`, which may be the same link.
namespace swell::topo {

/// Usual sizes of messages, in bytes: 8 to 16 MiB, a factor of 8 apart.
const std::vector<int>& message_sizes();
inline constexpr int kMaxMessageBytes = 16 << 20;

/// Serves measurements until the other side is done.
Result<void> serve(Link& control, Link& data);

/// Measures bandwidth and latency for each of `sizes` (1 to kMaxMessageBytes), each for about
/// `seconds`. Latency is half of a round trip.
Result<std::vector<cluster::MeasuredSize>> measure(Link& control, Link& data, double seconds,
                                                   const std::vector<int>& sizes = message_sizes());

/// Figures of a distance class from those of its pairs, which all measured the same sizes: medians,
/// and the spread.
cluster::MeasuredClass summarize(int distance,
                                 const std::vector<std::vector<cluster::MeasuredSize>>& pairs);

/// Largest bandwidth over all sizes; 0 where there are none.
double best_rate(const std::vector<cluster::MeasuredSize>& sizes) noexcept;

}  // namespace swell::topo
