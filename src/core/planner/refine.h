// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <unordered_map>

#include "core/executor.h"
#include "core/planner/evaluator.h"
#include "core/planner/expand.h"

namespace swell::planner {

/// A finished plan and the GPUs that it leaves idle.
struct Solution {
  plan::Layout layout;
  Islands idle;
  double seconds = 0;  ///< iteration time
  std::string why;     ///< how it was found, for ScaleRow::why
};

/// Rounds of refine() that were made already: from several starts it soon comes to the same plans,
/// and what a round makes of one depends on nothing else. For one problem; thread-safe.
class KnownRounds {
 public:
  /// The result of a round on a plan.
  struct Round {
    bool better = false;  ///< else there is no better plan, and `found` is none
    Solution found;       ///< `why`: of this round alone
    long evaluated = 0;   ///< plans whose time was estimated
  };
  /// Null: not made yet. Rounds found or added live as long as the object, unchanged.
  const Round* find(const Solution& from) const;
  const Round& add(const Solution& from, Round round);

 private:
  struct Known {
    plan::Layout layout;
    Islands idle;
    Round round;
  };
  mutable std::mutex mutex_;
  std::unordered_multimap<std::uint64_t, Known> known_;  ///< by a hash of plan and idle GPUs
};

/// Improves `found` by the best of small changes of its skeleton, repeated at most `rounds` times;
/// so it can undo what expanding step by step cannot. A stage gets another TP degree or all idle
/// GPUs, loses the groups of one node and type, is dropped, split, merged or exchanged with
/// another; groups move between stages; a layer moves. `deep`: where no change is better, the best
/// of the worse ones are refined further for two rounds. Not for exact consistency. `known`: rounds
/// of the same problem that need not be made again; the result is as without. `executor`: refines
/// the worse ones at the same time; null: one after the other, with the same result.
void refine(Solution& found, Evaluator& evaluator, const Degrees& degrees, KnownRounds& known,
            int rounds, bool deep = false, Executor* executor = nullptr);

/// Refines each of `all` for as many rounds as `rounds` says of it. `executor`: as above.
void refine_each(std::span<Solution> all, Evaluator& evaluator, const Degrees& degrees,
                 KnownRounds& known, const std::function<int(const Solution&)>& rounds,
                 Executor* executor);

}  // namespace swell::planner
