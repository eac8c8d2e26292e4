// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace swell::plan {

/// Passes of one kind in an iteration of a plan that says a schedule, or has chunks: a prediction
/// of so many takes some milliseconds, and reports of users make predictions. 128 stages of one
/// chunk and 512 micro-batches have as many.
inline constexpr long kMaxPasses = 65'536;

}  // namespace swell::plan
