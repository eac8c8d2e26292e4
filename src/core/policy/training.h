// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"
#include "core/planner/solver.h"

namespace swell::policy {

/// A job's training: the model, and the coefficients from its profile. Made by the controller from
/// what the job's agent reports, or by the simulator; read by policies that plan.
struct Training {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const perf::Coefficients> coefficients;  ///< null until the profile is stable
  /// Whether the coefficients follow from what the job's user says that it trains, and nobody has
  /// seen it run: then no other job loses what it is lent for this one.
  bool from_data_sheets = false;
  /// The plan on the basic GPUs; of a pending job, the user's plan, on any GPUs.
  plan::Layout basic;
  plan::Layout current;  ///< the plan that runs now; no stages while the job is pending
  planner::Consistency consistency = planner::Consistency::relaxed;
  bool takes_chunks = false;       ///< Problem::takes_chunks
  double measured_throughput = 0;  ///< samples a second under `current`; 0: not measured yet
  double measured_basic = 0;       ///< likewise under `basic`, whenever it ran
  int max_gpus_so_far = 0;         ///< largest number of GPUs that it has trained on
};

}  // namespace swell::policy
