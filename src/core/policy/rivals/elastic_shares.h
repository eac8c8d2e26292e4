// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/policy/rivals/contender.h"
#include "core/policy/rivals/gpu_pool.h"
#include "core/policy/rivals/scaling_curve.h"

namespace swell::policy {

/// Rubick's state of one job during a decision.
struct ElasticShare {
  const Contender* job = nullptr;
  std::vector<std::shared_ptr<const Curve>> curves;  ///< by GPU type; null if there is none
  std::unique_ptr<JobModel> model;                   ///< null for rigid jobs
  double users_throughput = 0;  ///< samples a second of the user's plan on what the user asked for
  int users_type = -1;          ///< GPU type of that plan
  bool may_change = false;      ///< its reconfiguration is cheap enough
  planner::Islands gpus;
  plan::Layout layout;  ///< no stages: the job does not run
  double value = 0;     ///< throughput over users_throughput
  bool changed = false;

  int type() const noexcept { return gpus.empty() ? -1 : gpus.front().type; }
  const Curve* curve(int type) const noexcept;
  /// Returns the smallest number of GPUs of `type` with which the job is as fast as the user's
  /// plan; for that plan's type, at most what the user asked for. 0: there is no such number.
  int min_gpus(int type) const noexcept;
  /// Returns the next smaller point of its curve that is not below min_gpus(); null if none is.
  const planner::SymmetricRow* below() const noexcept;
};

/// GPUs of all jobs during a decision, with changes that can be undone.
class ElasticShares {
 public:
  ElasticShares(const ClusterView& view, const std::vector<Contender>& jobs, CurveCache& curves);

  std::vector<ElasticShare>& all() noexcept { return shares_; }
  const GpuPool& pool() const noexcept { return pool_; }

  /// Starts a pending job with its minimum, or with what it asks for if it is rigid, on idle GPUs
  /// of `type`. Returns false if that is not possible.
  bool start(std::size_t job, int type);
  /// Shrinks the job to below(), first on the nodes where it has the fewest GPUs.
  bool shrink(std::size_t job);
  /// Grows the job to the size of `target`, if that makes it faster by the share `min_gain` on the
  /// GPUs that are idle.
  bool grow(std::size_t job, const planner::SymmetricRow& target, double min_gain);

  /// Returns the position in the log of changes; undo() reverts all changes since then.
  std::size_t mark() const noexcept { return undo_.size(); }
  void undo(std::size_t mark);

 private:
  struct Before {
    std::size_t job;
    planner::Islands gpus;
    plan::Layout layout;
    double value;
    bool changed;
  };
  void set(std::size_t job, plan::Layout layout, double value);
  /// Returns a plan of the point's size on `gpus`, as close to the curve as they allow.
  plan::Layout plan_on(ElasticShare& share, const planner::Islands& gpus,
                       const planner::SymmetricRow& point);

  GpuPool pool_;
  std::vector<ElasticShare> shares_;
  std::vector<Before> undo_;
};

}  // namespace swell::policy
