// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/perf/performance_model.h"
#include "core/plan/layout.h"
#include "core/planner/budget.h"
#include "core/planner/scale_table.h"

namespace swell::planner {

/// Changes of a plan that the job accepts (see docs/planner.md).
enum class Consistency {
  exact,    ///< only the number of stages and their layers: the loss stays bitwise the same
  relaxed,  ///< also DP and TP degrees
};

/// A job that could grow: its current plan, and the free GPUs. All references must outlive the
/// solver's call.
struct Problem {
  const perf::PerformanceModel& perf;
  plan::Layout current;
  std::vector<cluster::GpuRef> free;
  Consistency consistency = Consistency::relaxed;
  /// Whether the job's program runs plans with chunks. If so, exact plans have chunks if these are
  /// faster.
  bool takes_chunks = false;
};

/// Makes scale tables. Solvers keep no state: equal problems give equal tables, unless the budget
/// expires first.
class Solver {
 public:
  virtual ~Solver() = default;
  virtual ScaleTable solve(const Problem& problem, const Budget& budget) const = 0;
};

/// A solver that calls another one, and limits each call by a budget of its own, too.
class Limited final : public Solver {
 public:
  Limited(std::unique_ptr<const Solver> solver, std::function<Budget()> budget)
      : solver_(std::move(solver)), budget_(std::move(budget)) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override {
    const Budget own = budget_();
    return solver_->solve(problem, {[&] { return budget.expired() || own.expired(); }});
  }

 private:
  std::unique_ptr<const Solver> solver_;
  std::function<Budget()> budget_;
};

}  // namespace swell::planner
