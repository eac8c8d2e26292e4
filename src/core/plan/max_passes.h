// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace swell::plan {

/// Maximum number of passes of one kind in an iteration of a plan that names a schedule or has
/// chunks. Predicting this many takes some milliseconds, and each user's report triggers
/// predictions. 128 stages of one chunk with 512 micro-batches reach the maximum.
inline constexpr long kMaxPasses = 65'536;

}  // namespace swell::plan
