// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>

#include "core/policy/lending/scale_tables.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// How fast the jobs of one view are and may become: measured where they were, predicted otherwise,
/// and the latter corrected by how far predictions were off. The best of many plans is best in part
/// because its prediction errs most (the winner's curse), so the larger the errors are, the less of
/// a promised gain is expected.
class Belief {
 public:
  Belief(const ClusterView& view, const ScaleTables& tables);

  /// Whether the job can be planned for.
  bool knows(const ElasticJobView& job) const { return speeds_.contains(job.id); }
  /// Samples a second under the basic plan. REQUIRES: knows().
  double basic(const ElasticJobView& job) const { return speeds_.at(job.id).basic; }
  /// Samples a second under the plan that it runs. REQUIRES: knows().
  double now(const ElasticJobView& job) const { return speeds_.at(job.id).now; }
  /// Samples a second to expect of the best of many plans, where `predicted` is predicted for it.
  /// REQUIRES: knows().
  double of_best(const ElasticJobView& job, double predicted) const {
    return predicted * speeds_.at(job.id).correction;
  }
  /// Standard deviation of the errors of plans, beyond what all of the view share.
  double error() const noexcept { return error_; }
  /// Whether searches among many plans would find errors rather than speed.
  bool too_far_off() const noexcept;

 private:
  struct Speeds {
    double basic = 0, now = 0;
    double correction = 1;
  };
  std::map<JobId, Speeds> speeds_;
  double error_ = 0;
};

}  // namespace swell::policy
