// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>
#include <vector>

#include "core/schedule/schedule.h"

namespace swell::schedule {

/// Returns all forward passes, then all backward passes (GPipe).
Schedule gpipe(const Shape& shape);

/// Returns 1F1B: stage i first runs as many forward passes as there are stages behind it, then
/// alternates between forward and backward passes. REQUIRES: shape.chunks is 1.
Schedule one_forward_one_backward(const Shape& shape);

/// Returns 1F1B over chunks, for any number of micro-batches. Micro-batches pass in equal groups,
/// each with at least as many as there are stages if possible: a smaller group would leave the
/// first stage waiting for the last one at each chunk. Takes the larger of m v + p - 1 and p v + m
/// - 1 times the seconds of one chunk, the minimum of all schedules (FlexTrain, eq. 5). Equals 1F1B
/// with one chunk.
Schedule interleaved(const Shape& shape);

/// Returns the order of interleaved(), with weight passes while a stage would wait, as ZB-H1 does
/// for one chunk. No stage keeps more activations than the first stage of interleaved() does.
Schedule zero_bubble(const Shape& shape);

/// Returns one micro-batch at a time (FlexTrain, Fig. 3): no stage ever keeps activations of two.
Schedule memory_minimised(const Shape& shape);

/// Returns the names that named() accepts.
const std::vector<std::string_view>& names();

/// Returns the schedule called `name`. Returns an error if the name is unknown or its schedule
/// cannot have this shape.
Result<Schedule> named(std::string_view name, const Shape& shape);

/// Returns the order of interleaved() with groups of the given sizes. On stage i, `ahead` - 2 i
/// forward passes come before the first backward pass, but at least as many as the first group
/// needs. For searches. REQUIRES: the sizes are positive and sum to shape.micro_batches.
Schedule interleaved_in_groups(const Shape& shape, const std::vector<int>& sizes, int ahead);

}  // namespace swell::schedule
