// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>

#include "core/policy/lending/scale_tables.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Present speeds of the jobs of one view, and the tables to search for each job's plans.
/// Predictions of a job are corrected by what was measured of its own plans (measured_speeds.h).
/// Measurements of other jobs do not count, since users write their profiles, and no user may
/// decide what others are lent.
class Belief {
 public:
  /// `few`: tables that compare few plans, for jobs whose predictions are far off; null: there are
  /// none. All outlive the object.
  Belief(const ClusterView& view, const ScaleTables& tables, const ScaleTables* few = nullptr);

  /// Returns whether the job can be planned for.
  bool knows(const ElasticJobView& job) const { return jobs_.contains(job.id); }
  /// Returns the samples a second under the basic plan. REQUIRES: knows().
  double basic(const ElasticJobView& job) const { return jobs_.at(job.id).basic; }
  /// Returns the samples a second under the plan that runs. REQUIRES: knows().
  double now(const ElasticJobView& job) const { return jobs_.at(job.id).now; }
  /// Returns the tables to search for the job's plans: if predictions are far off, a search among
  /// many plans would select errors rather than speed. REQUIRES: knows().
  const ScaleTables& tables_of(const ElasticJobView& job) const { return *jobs_.at(job.id).tables; }

 private:
  struct Job {
    double basic = 0, now = 0;
    const ScaleTables* tables = nullptr;
  };
  std::map<JobId, Job> jobs_;
};

}  // namespace swell::policy
