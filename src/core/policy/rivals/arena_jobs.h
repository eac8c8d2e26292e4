// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/policy/objective.h"
#include "core/policy/rivals/contender.h"
#include "core/policy/rivals/gpu_pool.h"
#include "core/policy/rivals/scaling_curve.h"

namespace swell::policy {

/// Allocation of GPUs of one type: Arena's (n, m), with its figures from the job's table.
struct ArenaShare {
  int type = -1;
  int gpus = 0;
  double throughput = 0;
  perf::Combination degrees;
};

/// A job during one of Arena's decisions.
struct ArenaJob {
  const Contender* job = nullptr;
  std::vector<std::shared_ptr<const Curve>> tables;  ///< by GPU type; none for rigid jobs
  /// Rows of the tables that the job may have and that keep its deadline, by rising GPUs.
  std::vector<std::vector<ArenaShare>> shares;
  std::unique_ptr<JobModel> model;  ///< null if its training is not known
  double users_throughput = 0;   ///< samples a second of the user's plan on what the user asked for
  int users_type = -1;           ///< GPU type of that plan; -1: any
  double fair_throughput = 0;    ///< speed on an equal part of all GPUs of that type
  double needed_throughput = 0;  ///< below it the job misses its deadline; 0: any will do
  planner::Islands gpus;
  plan::Layout layout;
  double throughput = 0;  ///< of the GPUs that it has, by the table
  bool changed = false;

  bool launched() const noexcept { return !gpus.empty(); }
  bool scales() const noexcept { return job->movable && !job->rigid; }
  int type() const noexcept { return gpus.empty() ? -1 : gpus.front().type; }
  int count() const noexcept { return planner::count(gpus); }
  /// Returns `shares` of `type`; none for rigid jobs.
  const std::vector<ArenaShare>& rows(int type) const noexcept;
};

struct ArenaJobsOptions {
  Objective objective = Objective::throughput;
  bool plans = true;  ///< false: tables of data parallelism alone
  int largest = 0;    ///< limit of GPUs; 0: none
};

/// All jobs and GPUs during a decision, with changes that can be undone.
class ArenaJobs {
 public:
  ArenaJobs(const ClusterView& view, const std::vector<Contender>& jobs,
            const ArenaJobsOptions& options, CurveCache& curves);

  const std::vector<ArenaJob>& all() const noexcept { return jobs_; }
  const GpuPool& pool() const noexcept { return pool_; }
  int types() const noexcept { return types_; }

  /// Returns the value of a job's speed for the objective; differences of values compare changes.
  double worth(const ArenaJob& job, double throughput) const noexcept;

  /// Gives the job GPUs for `share` in place of its own, as near to these as possible: the smallest
  /// idle block of one node, whole nodes, or else what is idle. Returns false if no plan fits what
  /// is idle, or if the job gains less than the share `min_gain` of its speed.
  bool place(std::size_t job, const ArenaShare& share, double min_gain = -1);
  /// Leaves the job `share` of the GPUs that it has, whole nodes first.
  bool shrink(std::size_t job, const ArenaShare& share);
  /// Starts a rigid job with what it asks for.
  bool start_rigid(std::size_t job, int type);
  /// Moves at most `max` jobs within their GPU types, so that a job that is on more nodes than it
  /// needs is on fewer and gains the share `min_gain` of its speed.
  void defragment(int max, double min_gain);

  std::size_t mark() const noexcept { return undo_.size(); }
  void undo(std::size_t mark);
  Decisions decisions() const;

 private:
  struct Before {
    std::size_t job;
    planner::Islands gpus;
    plan::Layout layout;
    double throughput;
    bool changed;
  };
  std::optional<planner::Islands> find(const GpuPool& pool, const ArenaShare& share,
                                       const planner::Islands& held) const;
  plan::Layout plan_on(const ArenaJob& job, const planner::Islands& gpus,
                       const ArenaShare& share) const;
  double speed_of(const ArenaJob& job, const plan::Layout& layout, const ArenaShare& share) const;
  void set_needed(ArenaJob& job) const noexcept;
  bool is_spread(const ArenaJob& job) const noexcept;
  bool gather(std::size_t job, int max, double min_gain);
  void set(std::size_t job, plan::Layout layout, double throughput);

  ArenaJobsOptions options_;
  double now_s_ = 0;
  int types_ = 0;
  GpuPool pool_;
  std::vector<ArenaJob> jobs_;
  std::vector<Before> undo_;
};

}  // namespace swell::policy
