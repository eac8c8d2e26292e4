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
  /// One for each possible number of chunks: the costs of the plan so divided.
  std::vector<schedule::Costs> choices;
  /// By stage: memory of one GPU, static bytes included; empty: no limit.
  std::vector<double> limit_bytes;
  /// Whether weight gradients may be passes of their own.
  bool may_split_weights = true;
  /// Changes of order tried in each piece of work; fewer where a schedule has many passes.
  int changes = 1000;
};

struct FoundSchedule {
  schedule::Schedule schedule;
  std::size_t choice = 0;  ///< of ScheduleProblem::choices
  std::string name;        ///< of a named schedule; "search" for one that has none
  schedule::Evaluation prediction;
  /// The fastest named schedule within memory; infinity where none is.
  double best_named_s = 0;
  std::string best_named;
  long evaluated = 0;  ///< schedules whose time was predicted
};

/// Returns the fastest schedule that it finds within memory (FlexTrain, eq. 10): the named ones
/// with each number of chunks, variants of them, what list scheduling makes of these, and changes
/// of order along the critical path of the best. Never slower than a named schedule that fits.
/// Once `budget` is over it predicts no more than the named ones, and returns the best so far.
/// Until then equal problems give equal results, however many threads `executor` has. An error
/// where costs are wrong, or nothing fits.
Result<FoundSchedule> search_schedule(const ScheduleProblem& problem, Executor& executor,
                                      const Budget& budget = {});

}  // namespace swell::planner
