// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/planner/solver.h"
#include "core/policy/lending/canonical.h"

namespace swell::policy {

/// A scale table translated to the nodes and GPUs of the view.
class Scaling {
 public:
  Scaling() = default;
  Scaling(std::shared_ptr<const planner::ScaleTable> table, std::shared_ptr<const Canonical> names)
      : table_(std::move(table)), names_(std::move(names)) {}
  std::size_t rows() const noexcept { return table_ ? table_->rows.size() : 0; }
  int gpus(std::size_t row) const noexcept { return table_->rows[row].gpus; }
  double throughput(std::size_t row) const noexcept { return table_->rows[row].throughput; }
  plan::Layout layout(std::size_t row) const { return names_->original(table_->rows[row].layout); }
  /// The `i`th GPU in the order of taking; row r has the first gpus(r) - gpus(0).
  cluster::GpuRef taken(std::size_t i) const { return names_->original(table_->order[i]); }
  bool complete() const noexcept { return !table_ || table_->complete; }
  long evaluated() const noexcept { return table_ ? table_->evaluated : 0; }

 private:
  std::shared_ptr<const planner::ScaleTable> table_;
  std::shared_ptr<const Canonical> names_;
};

/// Cache of one solver's scale tables: successive decisions ask for mostly the same ones. A pure
/// function with bounded memory; thread-safe.
class ScaleTables {
 public:
  explicit ScaleTables(std::unique_ptr<const planner::Solver> solver,
                       perf::Sends sends = perf::Sends::ignored, std::size_t max = 8192)
      : solver_(std::move(solver)), sends_(sends), max_(max) {}

  /// Scale table of a job that runs `current` and could have the first `max` of `free` in affinity
  /// order. REQUIRES: `training` has a model and coefficients.
  Scaling of(const Training& training, const plan::Layout& current,
             const std::vector<cluster::GpuRef>& free, std::size_t max,
             const cluster::Cluster& machines) const;
  /// Samples a second of `layout`, predicted as in the tables.
  double throughput(const Training& training, const plan::Layout& layout,
                    const cluster::Cluster& machines) const {
    return perf::PerformanceModel(*training.model, machines, *training.coefficients, sends_)
        .throughput(layout);
  }

 private:
  using Memory = std::unordered_map<std::string, std::shared_ptr<const planner::ScaleTable>>;
  std::shared_ptr<const planner::ScaleTable> find(const std::string& key) const;

  std::unique_ptr<const planner::Solver> solver_;
  perf::Sends sends_;
  std::size_t max_;
  mutable std::mutex mutex_;
  mutable Memory recent_, older_;  ///< `recent_` replaces `older_` when full
};

}  // namespace swell::policy
