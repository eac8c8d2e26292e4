// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/belief.h"
#include "core/policy/lending/owed.h"
#include "core/policy/lending/swell.h"
#include "core/redeploy/redeployment.h"

namespace swell::policy {

/// Computes the worth of GPUs to the jobs of one view, by the policy's objective, and the cost of a
/// change of plan to them. Pure. Keeps references to its arguments, which must outlive it. Each
/// function REQUIRES: Belief::knows() the job.
class Worth {
 public:
  Worth(const ClusterView& view, const Swell::Options& options, const Belief& belief);

  /// Returns the gain of going from `before` to `after`, both in samples a second, in a unit of the
  /// objective.
  double gain(const ElasticJobView& job, double before, double after) const;

  /// Returns the level of the job at `throughput` samples a second, for the objective that helps
  /// the worst job most: idle GPUs go to the job of lowest level first, whatever they gain. For
  /// fairness it is the inverse of the ratio of eq. 7, up to a factor that all jobs share; for
  /// other objectives 0.
  double level(const ElasticJobView& job, double throughput) const;

  /// Returns the job's loss for each GPU of the companion, in the unit of gain(); companions count
  /// in the order in which the job got them. Makes no plans for the sizes in between: speed is
  /// assumed to follow one power law of the number of GPUs.
  double loss(const ElasticJobView& job, const CompanionView& companion) const;

  /// Returns the cost of changing to plan `to`: the measured one if there is one, else the model's.
  redeploy::Cost cost_of(const ElasticJobView& job, const plan::Layout& to) const;

  /// Returns the seconds within which a change of plan has to pay: the time left if it is known;
  /// otherwise the time that the job has run, since durations have long tails: half of the jobs of
  /// an age reach twice that age.
  double horizon_s(const ElasticJobView& job, double throughput) const;

  /// Returns the mean throughput over the horizon, with a pause of `pause_s` in it.
  double after_pause(const ElasticJobView& job, double throughput, double pause_s) const;

 private:
  /// Returns the utility of `times` the job's own unit of speed: times ^ (1 - aversion), so that a
  /// large gain of one job counts less than small gains of several.
  static double utility(double times, double aversion);
  /// Returns a weight that falls with the time left. Uses the remaining steps only if all jobs
  /// report them; otherwise the age of each job stands for its time left, since half of all jobs
  /// reach twice their age.
  double weight(const ElasticJobView& job) const;
  /// Returns the speed on one GPU, if speed grows with a power of the GPUs. The ratio of eq. 7 is
  /// the speed on a fair share over the present one, since both leave the same samples; the share
  /// is the same for all jobs, so that one GPU stands for it.
  double on_one_gpu(const ElasticJobView& job) const;

  const ClusterView& view_;
  const Swell::Options& options_;
  const Belief& belief_;
  bool all_ends_known_;  ///< whether all jobs that belief_ knows report their ends
};

}  // namespace swell::policy
