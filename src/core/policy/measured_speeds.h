// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace swell::policy {

/// A plan that a job ran, and its measured speed.
struct MeasuredSpeed {
  /// Limit of plans that are kept of one job: the first, which is mostly that on its own GPUs, and
  /// the last ones.
  static constexpr std::size_t kMax = 8;
  plan::Layout layout;
  double samples_per_s = 0;
};

/// Adds a speed to those of one job; replaces an earlier one of a plan of the same shape.
void add_speed(std::vector<MeasuredSpeed>& speeds, MeasuredSpeed speed);

/// Returns `coefficients` with corrections by the measured speeds of the job's plans. A plan of a
/// measured shape gets its measured speed within 1 %, so that a plan that is slower than predicted
/// is chosen once, and a faster one again. The other plans are expected to err by what the measured
/// ones have in common, and to be a little slower, since the best of many plans is best in part by
/// its error (the winner's curse). Ignores speeds and plans without a prediction. REQUIRES: the
/// layouts were resolved against `machines`.
std::shared_ptr<const perf::Coefficients> corrected(
    const std::shared_ptr<const perf::Coefficients>& coefficients, const models::Model& model,
    const cluster::Cluster& machines, const std::vector<MeasuredSpeed>& speeds);

/// Returns the standard deviation of the errors of one job's plans, beyond what they have in
/// common; the usual value before anything was measured.
double error_of(const perf::MeasuredPlans& measured);

/// Returns the factor by which the best of many plans is slower than predicted, if predictions have
/// this error.
double winners_curse(double error) noexcept;

}  // namespace swell::policy
