// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "core/planner/scale_table.h"
#include "core/planner/symmetric.h"
#include "core/policy/training.h"

namespace swell::policy {

/// Scale table of a job on GPUs of one type, packed on as few nodes as possible. It has only
/// numbers of GPUs with which the job is faster than with any smaller number. Rubick calls it
/// resource sensitivity curve; Sia and ElasticFlow use it as throughput by allocation, where only
/// DP may change. The global batch is that of the user's plan, and so is the number of
/// micro-batches, unless a micro-batch has fewer samples than there are replicas (then there are
/// fewer, larger ones) or does not fit memory (then there are more, smaller ones).
using Curve = std::vector<planner::SymmetricRow>;

/// Numbers of GPUs that a curve has.
enum class Sizes : std::uint8_t {
  any,
  powers_of_two  ///< these, and the number of the user's plan
};

/// Performance model of one job, by its coefficients or, until there are some, by data sheets; and
/// the plans that it gives. Not thread-safe: one for each decision.
class JobModel {
 public:
  JobModel(std::shared_ptr<const Training> training,
           std::shared_ptr<const cluster::Cluster> machines);
  JobModel(const JobModel&) = delete;

  /// Returns the curve over plans of `space` with equal local batches, on at most `max` GPUs of
  /// `type`. It has only plans that fit memory.
  Curve curve(int type, planner::SymmetricSpace space, int max, Sizes sizes = Sizes::any);
  /// Returns the plan of `degrees` on `gpus`; no stages if it does not fit.
  plan::Layout on(planner::Islands gpus, perf::Combination degrees);
  /// Returns the fastest plan of `space` on at most `gpus`, with the user's micro-batches; no
  /// stages if none fits.
  plan::Layout best_on(const planner::Islands& gpus, planner::SymmetricSpace space);
  /// Returns the samples a second of `layout`; 0 for one without stages.
  double throughput(const plan::Layout& layout);

 private:
  planner::Evaluator& evaluator(int micro_batches);
  std::shared_ptr<const Training> training_;
  std::shared_ptr<const cluster::Cluster> machines_;
  std::shared_ptr<const perf::Coefficients> coefficients_;
  perf::PerformanceModel perf_;
  std::map<int, planner::Evaluator> evaluators_;  ///< by micro-batches
};

/// Returns the space of plans with PP and TP as in the user's plan: Sia's "scaling by DP alone".
planner::SymmetricSpace users_cell(const Training& training) noexcept;

/// Cache of curves. A curve depends only on its key, so equal views still give equal decisions.
/// Thread-safe.
class CurveCache {
 public:
  std::shared_ptr<const Curve> get(const std::shared_ptr<const Training>& training,
                                   const std::shared_ptr<const cluster::Cluster>& machines,
                                   int type, planner::SymmetricSpace space, int max,
                                   Sizes sizes = Sizes::any);

 private:
  // The key has addresses: each entry keeps their owners, so that no other object gets an address
  // while the entry lives.
  using Key = std::tuple<const void*, const void*, const void*, int, int, int, int, int, int, int>;
  struct Entry {
    std::shared_ptr<const models::Model> model;
    std::shared_ptr<const perf::Coefficients> coefficients;
    std::shared_ptr<const cluster::Cluster> machines;
    std::shared_ptr<const Curve> curve;
  };
  Mutex lock_;
  std::map<Key, Entry> entries_ SWELL_GUARDED_BY(lock_);
};

}  // namespace swell::policy
