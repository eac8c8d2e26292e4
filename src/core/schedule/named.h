// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>
#include <vector>

#include "core/schedule/schedule.h"

namespace swell::schedule {

/// All forward passes, then all backward passes (GPipe).
Schedule gpipe(const Shape& shape);

/// 1F1B: stage i runs as many forward passes ahead as there are stages behind it, then one backward
/// pass for each forward pass. REQUIRES: shape.chunks is 1.
Schedule one_forward_one_backward(const Shape& shape);

/// 1F1B over chunks, for any number of micro-batches. They go through in equal groups, none smaller
/// than the pipeline is deep where there are that many: a smaller group would leave the first stage
/// waiting for the last one at each chunk. Takes the larger of m v + p - 1 and p v + m - 1 times
/// one chunk, which no schedule is below (FlexTrain, eq. 5). Equals 1F1B with one chunk.
Schedule interleaved(const Shape& shape);

/// The order of interleaved(), with passes of weight gradients where a stage would wait, as ZB-H1
/// does with one chunk. No stage keeps more activations than the first one of interleaved().
Schedule zero_bubble(const Shape& shape);

/// One micro-batch at a time (FlexTrain, Fig. 3): no stage ever keeps activations of two.
Schedule memory_minimised(const Shape& shape);

/// Names that named() knows.
const std::vector<std::string_view>& names();

/// The schedule called `name`; an error where there is none of that name, or none of that shape.
Result<Schedule> named(std::string_view name, const Shape& shape);

/// The order of interleaved() with groups of the given sizes and, on stage i, `ahead` - 2 i forward
/// passes before the first backward pass; at least as many as the first group needs. For searches.
/// REQUIRES: the sizes are positive and sum to shape.micro_batches.
Schedule interleaved_in_groups(const Shape& shape, const std::vector<int>& sizes, int ahead);

}  // namespace swell::schedule
