// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "core/planner/symmetric.h"
#include "core/policy/training.h"

namespace swell::policy {

/// The degrees of a symmetric plan, and its gradient accumulation at the same global batch:
/// micro-batches are as many as in the user's plan, but fewer and larger ones where there are more
/// replicas than one has samples, and more and smaller ones where these do not fit memory.
struct Parallelism {
  int pp = 1, dp = 1, tp = 1;
  int micro_batches = 1;
  int gpus() const noexcept { return pp * dp * tp; }
  friend bool operator==(const Parallelism&, const Parallelism&) = default;
};

struct CurvePoint {
  Parallelism shape;
  double throughput = 0;  ///< samples a second
  int gpus() const noexcept { return shape.gpus(); }
};

/// A job's throughput by GPUs of one type, packed on as few nodes as possible: only numbers of GPUs
/// with which it is faster than with any smaller number. Rubick's resource sensitivity curve, or
/// Sia's and ElasticFlow's throughput by allocation where only DP may change.
using Curve = std::vector<CurvePoint>;

/// One job's performance model and the plans it gives. By the job's coefficients, or what data
/// sheets say until there are some. Not thread-safe: one a decision.
class JobModel {
 public:
  JobModel(std::shared_ptr<const Training> training,
           std::shared_ptr<const cluster::Cluster> machines);
  JobModel(const JobModel&) = delete;

  /// Over plans of `space` whose groups have equally many samples, on at most `max` GPUs of `type`.
  /// Only what fits memory.
  Curve curve(int type, planner::SymmetricSpace space, int max);
  /// A plan of that shape on `gpus`; no stages where it does not fit.
  plan::Layout on(planner::Clumps gpus, Parallelism shape);
  /// The fastest plan of `space` on at most `gpus`, with the user's micro-batches; no stages where
  /// none fits.
  plan::Layout best_on(const planner::Clumps& gpus, planner::SymmetricSpace space);
  /// Samples a second; 0 for no stages.
  double throughput(const plan::Layout& layout);

 private:
  planner::Evaluator& evaluator(int micro_batches);
  std::shared_ptr<const Training> training_;
  std::shared_ptr<const cluster::Cluster> machines_;
  std::shared_ptr<const perf::Coefficients> coefficients_;
  perf::PerformanceModel perf_;
  std::map<int, planner::Evaluator> evaluators_;  ///< by micro-batches
};

/// PP and TP as in the user's plan: Sia's "scaling by DP alone".
planner::SymmetricSpace users_cell(const Training& training) noexcept;

/// Curves that were made already. They follow from what they are kept by alone, hence equal views
/// still give equal decisions. Thread-safe.
class CurveCache {
 public:
  std::shared_ptr<const Curve> get(const std::shared_ptr<const Training>& training,
                                   const std::shared_ptr<const cluster::Cluster>& machines,
                                   int type, planner::SymmetricSpace space, int max);

 private:
  // By address: the owners are kept, so that no other object gets it while the entry lives.
  using Key = std::tuple<const void*, const void*, const void*, int, int, int, int, int, int>;
  struct Entry {
    std::shared_ptr<const models::Model> model;
    std::shared_ptr<const perf::Coefficients> coefficients;
    std::shared_ptr<const cluster::Cluster> machines;
    std::shared_ptr<const Curve> curve;
  };
  std::mutex lock_;
  std::map<Key, Entry> entries_;
};

}  // namespace swell::policy
