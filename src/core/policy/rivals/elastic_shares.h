// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/policy/rivals/contender.h"
#include "core/policy/rivals/gpu_pool.h"
#include "core/policy/rivals/scaling_curve.h"

namespace swell::policy {

/// What Rubick knows of one job while it decides.
struct ElasticShare {
  const Contender* job = nullptr;
  std::vector<std::shared_ptr<const Curve>> curves;  ///< by GPU type; null where there is none
  std::unique_ptr<JobModel> model;                   ///< null: rigid
  double users_throughput = 0;  ///< of the user's plan on what the user asked for
  bool may_change = false;      ///< its reconfiguration is cheap enough
  planner::Clumps gpus;
  plan::Layout layout;  ///< no stages: not running
  double value = 0;     ///< throughput over users_throughput
  bool changed = false;

  int type() const noexcept { return gpus.empty() ? -1 : gpus.front().type; }
  const Curve* curve(int type) const noexcept;
  /// The fewest GPUs of `type` with which it is as fast as the user's plan; 0: none are.
  int min_gpus(int type) const noexcept;
  /// The next smaller useful number of GPUs, not below least(); null where there is none.
  const CurvePoint* below() const noexcept;
};

/// All jobs' shares of the cluster, and changes of them that can be undone.
class ElasticShares {
 public:
  ElasticShares(const ClusterView& view, const std::vector<Contender>& jobs, CurveCache& curves);

  std::vector<ElasticShare>& all() noexcept { return shares_; }
  const GpuPool& pool() const noexcept { return pool_; }

  /// Starts a pending job with its minimum, or what it asks for where rigid, on idle GPUs of
  /// `type`.
  bool start(std::size_t job, int type);
  /// Takes the job down to below(); which GPUs: those of the nodes where it has the fewest.
  bool shrink(std::size_t job);
  /// Brings the job to the size of `target`, if that makes it faster by the share `min_gain` where
  /// the idle GPUs are.
  bool grow(std::size_t job, const CurvePoint& target, double min_gain);

  /// Undo everything since the mark.
  std::size_t mark() const noexcept { return undo_.size(); }
  void undo(std::size_t mark);

 private:
  struct Before {
    std::size_t job;
    planner::Clumps gpus;
    plan::Layout layout;
    double value;
    bool changed;
  };
  void set(std::size_t job, plan::Layout layout, double value);
  /// A plan of that size on `gpus`, as close to the curve as they allow.
  plan::Layout plan_on(ElasticShare& share, const planner::Clumps& gpus, const CurvePoint& point);

  GpuPool pool_;
  std::vector<ElasticShare> shares_;
  std::vector<Before> undo_;
};

}  // namespace swell::policy
