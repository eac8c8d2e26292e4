// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/executor.h"
#include "core/planner/budget.h"
#include "core/schedule/evaluate.h"

namespace swell::planner {

/// The input of a search for a schedule.
struct ScheduleProblem {
  /// The costs of the plan for each possible number of chunks.
  std::vector<schedule::Costs> choices;
  /// Memory limit of one GPU by stage, static bytes included; empty: no limit.
  std::vector<double> limit_bytes;
  /// Whether weight gradients may be computed in separate passes.
  bool may_split_weights = true;
  /// Changes of order tried in each task; fewer if a schedule has many passes.
  int changes = 1000;
};

struct FoundSchedule {
  schedule::Schedule schedule;
  std::size_t choice = 0;  ///< index into ScheduleProblem::choices
  std::string name;        ///< name of a named schedule; "search" for others
  schedule::Evaluation prediction;
  /// Time of the fastest named schedule within memory; infinity if none fits.
  double best_named_s = 0;
  std::string best_named;
  long evaluated = 0;  ///< schedules whose time was predicted
};

/// Returns the fastest schedule that it finds within memory (FlexTrain, eq. 10). Tries the named
/// ones with each number of chunks, variants of them, list schedules derived from these, and
/// changes of order along the critical path of the best. Never slower than a named schedule that
/// fits. After `budget` expires, predicts only the named ones and returns the best so far.
/// Otherwise equal problems give equal results for any number of threads of `executor`. Returns an
/// error if costs are invalid or nothing fits.
Result<FoundSchedule> search_schedule(const ScheduleProblem& problem, Executor& executor,
                                      const Budget& budget = {});

}  // namespace swell::planner
