// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/belief.h"

#include "core/policy/lending/expansions.h"
#include "core/policy/measured_speeds.h"

namespace swell::policy {

namespace {

/// Error above which only few plans are compared.
constexpr double kTooFarOff = 0.1;

}  // namespace

Belief::Belief(const ClusterView& view, const ScaleTables& tables, const ScaleTables* few) {
  for (const ElasticJobView& job : view.jobs) {
    if (!Expansions::can_plan(job, view)) continue;
    const Training& training = *job.training;
    const bool too_far_off = error_of(training.coefficients->measured) > kTooFarOff;
    jobs_[job.id] = {tables.throughput(training, training.basic, *view.machines),
                     tables.throughput(training, training.current, *view.machines),
                     too_far_off && few != nullptr ? few : &tables};
  }
}

}  // namespace swell::policy
