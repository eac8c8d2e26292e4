// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"
#include "core/planner/scale_table.h"
#include "core/planner/solver.h"

namespace swell::policy {

/// A job's training: the model, and the coefficients from its profile. Made by the controller from
/// what the job's agent reports, or by the simulator; read by policies that plan.
struct Training {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const perf::Coefficients> coefficients;  ///< null until the profile is stable
  /// Where the coefficients come from.
  planner::ScaleSource source = planner::ScaleSource::running_job;
  /// Returns whether its speeds were measured. Other jobs do not lose lent GPUs to a job whose
  /// speeds come from data sheets and from what its user says that it trains.
  bool is_measured() const noexcept {
    return source == planner::ScaleSource::running_job ||
           source == planner::ScaleSource::one_device;
  }
  /// The plan on the basic GPUs; for a pending job, the user's plan on any GPUs.
  plan::Layout basic;
  plan::Layout current;  ///< the plan that runs now; no stages while the job is pending
  planner::Consistency consistency = planner::Consistency::relaxed;
  bool takes_chunks = false;  ///< see planner::Problem::takes_chunks
  int max_gpus_so_far = 0;    ///< largest number of GPUs that it has trained on
};

}  // namespace swell::policy
