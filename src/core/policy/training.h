// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"
#include "core/planner/solver.h"

namespace swell::policy {

/// What a job trains, and what its profile says of it. Made by the controller from what the job's
/// agent reports, or by the simulator; read by policies that plan.
struct Training {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const perf::Coefficients> coefficients;  ///< null until there is a stable profile
  plan::Layout
      basic;  ///< the plan on the basic GPUs; of a pending job: on any, as the user wrote it
  plan::Layout current;  ///< the plan that runs now; no stages while the job is pending
  planner::Consistency consistency = planner::Consistency::relaxed;
  double remaining_samples = -1;   ///< until the job ends; below 0: not known
  double measured_throughput = 0;  ///< samples a second under `current`; 0: not measured yet
  int max_gpus_so_far = 0;         ///< that it has trained on at one time so far
};

}  // namespace swell::policy
