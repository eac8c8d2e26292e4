// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/belief.h"
#include "core/policy/lending/owed.h"
#include "core/policy/lending/swell.h"
#include "core/redeploy/redeployment.h"

namespace swell::policy {

/// What GPUs are worth to the jobs of one view, by Swell's objective, and what a change of plan
/// costs them. Pure. Refers to what it is made of, which outlives it. Each function REQUIRES:
/// Belief::knows() the job.
class Worth {
 public:
  Worth(const ClusterView& view, const Swell::Options& options, const Belief& belief) noexcept
      : view_(view), options_(options), belief_(belief) {}

  /// Gain by going from `before` to `after`, both in samples a second.
  double gain(const ElasticJobView& job, double before, double after) const;

  /// Loss of the job by one GPU of the companion, in the unit of gain(); companions count in the
  /// order in which the job got them. Sizes in between are not planned anew at every decision:
  /// speed is taken to have grown with one power of the GPUs all the way.
  double loss(const ElasticJobView& job, const CompanionView& companion) const;

  /// Cost of going to plan `to`: as measured, where that was, else by the model.
  redeploy::Cost cost_of(const ElasticJobView& job, const plan::Layout& to) const;

  /// Seconds within which a change of plan has to pay: the time left where that is known; otherwise
  /// the time that the job has run, since durations have long tails: half of the jobs of an age
  /// reach twice that age.
  double horizon_s(const ElasticJobView& job, double throughput) const;

  /// Mean throughput over the horizon, with a pause of `pause_s` in it.
  double after_pause(const ElasticJobView& job, double throughput, double pause_s) const;

 private:
  /// Worth of a job's speed, which is `times` that on its basic GPUs: a power below 1, so that much
  /// for one job counts less than a little for several.
  double utility(double times) const;
  double weight(const ElasticJobView& job) const;

  const ClusterView& view_;
  const Swell::Options& options_;
  const Belief& belief_;
};

}  // namespace swell::policy
