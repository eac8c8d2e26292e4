// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "core/planner/solver.h"
#include "core/policy/lending/canonical.h"

namespace swell::policy {

/// A scale table translated to the nodes and GPUs of the view.
class Scaling {
 public:
  Scaling() = default;
  Scaling(std::shared_ptr<const planner::ScaleTable> table, bool thorough,
          std::shared_ptr<const Canonical> names)
      : table_(std::move(table)), thorough_(thorough), names_(std::move(names)) {}
  std::size_t rows() const noexcept { return table_ ? table_->rows.size() : 0; }
  int gpus(std::size_t row) const noexcept { return table_->rows[row].gpus; }
  double throughput(std::size_t row) const noexcept { return table_->rows[row].throughput; }
  /// Returns the samples a second predicted from the layers alone, see planner::ScaleRow.
  double modelled(std::size_t row) const noexcept { return table_->rows[row].modelled; }
  plan::Layout layout(std::size_t row) const { return names_->original(table_->rows[row].layout); }
  planner::ScaleRow row(std::size_t row) const {
    planner::ScaleRow translated = table_->rows[row];
    translated.layout = layout(row);
    return translated;
  }
  /// Returns planner::ScaleTable::again.
  std::optional<planner::ScaleRow> again() const {
    if (!table_ || !table_->again) return std::nullopt;
    planner::ScaleRow translated = *table_->again;
    translated.layout = names_->original(translated.layout);
    return translated;
  }
  /// Returns the `i`th GPU in the order of taking; row r has the first gpus(r) - gpus(0) of them.
  cluster::GpuRef taken(std::size_t i) const { return names_->original(table_->order[i]); }
  bool complete() const noexcept { return !table_ || table_->complete; }
  /// Returns whether the thorough solver made the table.
  bool thorough() const noexcept { return thorough_; }
  long evaluated() const noexcept { return table_ ? table_->evaluated : 0; }

 private:
  std::shared_ptr<const planner::ScaleTable> table_;
  bool thorough_ = true;
  std::shared_ptr<const Canonical> names_;
};

/// Remaining budget of one decision for tables that no earlier decision made, as a number of plans
/// evaluated. It is not a time, so that equal views give equal decisions on any machine.
struct Effort {
  long thorough = 0;  ///< once it is spent, the thorough solver makes no tables
  long any = 0;       ///< once it is spent, no tables are made
  bool allows_thorough() const noexcept { return thorough > 0 && any > 0; }
};

enum class Care { quick, thorough };

/// Cache of one solver's scale tables: successive decisions ask for mostly the same ones. A pure
/// function with bounded memory; thread-safe.
class ScaleTables {
 public:
  explicit ScaleTables(std::unique_ptr<const planner::Solver> solver,
                       perf::Sends sends = perf::Sends::ignored, std::size_t max = 8192)
      : solver_(std::move(solver)), sends_(sends), max_(max) {}

  /// Cache of two solvers' tables, for decisions with a limited Effort.
  ScaleTables(std::unique_ptr<const planner::Solver> thorough,
              std::unique_ptr<const planner::Solver> quick, perf::Sends sends)
      : ScaleTables(std::move(thorough), sends) {
    quick_ = std::move(quick);
  }

  /// Returns the table of a job that runs `current` and could have the first `max` of `free` (in
  /// affinity order). With `effort` the quick solver makes it, unless the thorough one is asked for
  /// or has made it; no rows if all is spent. REQUIRES: `training` has model and coefficients.
  Scaling of(const Training& training, const plan::Layout& current,
             const std::vector<cluster::GpuRef>& free, std::size_t max,
             const cluster::Cluster& machines, Effort* effort = nullptr,
             Care care = Care::quick) const;
  /// Returns the samples a second of `layout`, predicted as in the tables.
  double throughput(const Training& training, const plan::Layout& layout,
                    const cluster::Cluster& machines) const {
    return perf::PerformanceModel(*training.model, machines, *training.coefficients, sends_)
        .throughput(layout);
  }

 private:
  struct Known {
    std::shared_ptr<const planner::ScaleTable> table;  ///< null: none
    bool thorough = true;
  };
  using Memory = std::unordered_map<std::string, Known>;
  Known find(const std::string& key) const;
  void remember(const std::string& key, Known known) const;

  std::unique_ptr<const planner::Solver> solver_, quick_;
  perf::Sends sends_;
  std::size_t max_;
  mutable Mutex mutex_;
  mutable Memory recent_ SWELL_GUARDED_BY(mutex_);
  mutable Memory older_ SWELL_GUARDED_BY(mutex_);  ///< `recent_` replaces `older_` when full
};

}  // namespace swell::policy
