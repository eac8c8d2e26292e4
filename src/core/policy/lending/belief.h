// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>

#include "core/policy/lending/scale_tables.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Present and possible speeds of the jobs of one view. Takes measured speeds where there are any,
/// otherwise predictions, corrected by the errors of earlier ones. The best of many plans is best
/// in part because its prediction errs most (the winner's curse): the larger the errors are, the
/// less of a promised gain is expected. The errors of a job's own plans count for that job alone.
/// From the jobs of other owners the median over these owners counts, at most kMaxOfOthers: users
/// write their profiles themselves, and no single user may decide what others are lent.
class Belief {
 public:
  /// `few`: tables that compare few plans, for jobs that are too_far_off(); null: there are none.
  /// All outlive the object.
  Belief(const ClusterView& view, const ScaleTables& tables, const ScaleTables* few = nullptr);

  /// Maximum error that jobs of other owners add to a job's.
  static constexpr double kMaxOfOthers = 0.05;
  /// Least number of other owners for their median to count: of fewer, two could choose its value.
  static constexpr std::size_t kMinOwners = 3;

  /// Returns whether the job can be planned for.
  bool knows(const ElasticJobView& job) const { return speeds_.contains(job.id); }
  /// Returns the samples a second under the basic plan. REQUIRES: knows().
  double basic(const ElasticJobView& job) const { return speeds_.at(job.id).basic; }
  /// Returns the samples a second under the plan that runs. REQUIRES: knows().
  double now(const ElasticJobView& job) const { return speeds_.at(job.id).now; }
  /// Returns the samples a second to expect of the best of many plans, if `predicted` is predicted
  /// for it. REQUIRES: knows().
  double of_best(const ElasticJobView& job, double predicted) const {
    return predicted * speeds_.at(job.id).correction;
  }
  /// Standard deviation of the errors of the job's plans. REQUIRES: knows().
  double error(const ElasticJobView& job) const { return speeds_.at(job.id).error; }
  /// Factor by which the errors of other owners' jobs lower what is expected of this one; 1: they
  /// do not. REQUIRES: knows().
  double lowered_by_others(const ElasticJobView& job) const { return speeds_.at(job.id).others; }
  /// Returns whether the errors of the job's own plans are so large that a search among many plans
  /// would select errors rather than speed. REQUIRES: knows().
  bool too_far_off(const ElasticJobView& job) const;
  /// Returns the tables to search for the job's plans. REQUIRES: knows().
  const ScaleTables& tables_of(const ElasticJobView& job) const {
    return few_ != nullptr && too_far_off(job) ? *few_ : tables_;
  }

 private:
  struct Speeds {
    double basic = 0, now = 0;
    double correction = 1;
    double own_error = 0, error = 0;  ///< of its own plans; with those of others
    double others = 1;                ///< part of `correction`
  };
  std::map<JobId, Speeds> speeds_;
  const ScaleTables& tables_;
  const ScaleTables* few_;
};

}  // namespace swell::policy
