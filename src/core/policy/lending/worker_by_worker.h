// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/lending/room.h"

namespace swell::policy {

/// Lends what `room` has left to `jobs` whose training is not known: one worker at a time to the
/// job with the fewest GPUs. Grows a job only where its total rises by at least the share
/// `min_growth`.
std::vector<Grant> lend_worker_by_worker(Room& room, const std::vector<const ElasticJobView*>& jobs,
                                         double min_growth);

}  // namespace swell::policy
