// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/perf/performance_model.h"
#include "core/plan/layout.h"

namespace swell::planner {

/// What may change besides the pipeline degree (see docs/planner.md).
enum class Consistency {
  exact,    ///< the pipeline degree and the layers of stages alone: the loss stays bitwise the same
  relaxed,  ///< DP and TP too
};

/// One job that could grow: what it runs now, and which GPUs are free. Everything referred to
/// outlives the solver's call.
struct Problem {
  const perf::PerformanceModel& perf;
  plan::Layout current;
  std::vector<cluster::GpuRef> free;
  Consistency consistency = Consistency::relaxed;
};

/// How long a solver may look. The core has no clock: the caller's function says when time is up.
struct Budget {
  std::function<bool()> expired = [] { return false; };
};

/// The best plan found for one number of GPUs.
struct ScaleRow {
  int gpus = 0;  ///< the job has this many, some of which the plan may leave idle
  plan::Layout layout;
  double throughput = 0;  ///< samples a second
  std::string why;        ///< how the plan came from a smaller one
};

/// Rising by GPUs and never falling in throughput; the first row is the current plan.
struct ScaleTable {
  std::vector<ScaleRow> rows;
  /// The free GPUs as they are taken: row with g GPUs has the first g - N.
  std::vector<cluster::GpuRef> order;
  bool complete = true;  ///< false: time was up before the last row
  long evaluated = 0;    ///< plans whose time was estimated
};

/// Finds scale tables. Solvers keep no state: equal problems give equal tables (but for the
/// budget).
class Solver {
 public:
  virtual ~Solver() = default;
  virtual ScaleTable solve(const Problem& problem, const Budget& budget) const = 0;
};

}  // namespace swell::planner
