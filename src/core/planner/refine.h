// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>

#include "base/mutex.h"
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

/// Cache of the rounds of refine(): rounds from several starts often reach the same plans, and the
/// result of a round depends only on its plan. For one problem; thread-safe.
class KnownRounds {
 public:
  /// The result of a round on a plan.
  struct Round {
    bool better = false;  ///< whether the round found a better plan; if not, `found` is empty
    Solution found;       ///< `found.why` describes this round only
    long evaluated = 0;   ///< plans whose time was estimated
  };
  /// Returns the cached round; null if there is none. Rounds stay valid and unchanged as long as
  /// the object.
  const Round* find(const Solution& from) const;
  const Round& add(const Solution& from, Round round);

 private:
  struct Known {
    plan::Layout layout;
    Islands idle;
    Round round;
  };
  mutable Mutex mutex_;
  std::unordered_multimap<std::uint64_t, Known> known_
      SWELL_GUARDED_BY(mutex_);  ///< by a hash of plan and idle GPUs
};

/// Improves `found` by the best of several small changes of its skeleton, at most `rounds` times;
/// this can undo choices that step-by-step expansion cannot. The changes: a stage gets another TP
/// degree or all idle GPUs, loses its groups on one node and type, is dropped, split, merged or
/// swapped with another; groups move between stages; a layer moves. `deep`: if no change is better,
/// refines the best of the worse changes for two more rounds. Not for exact consistency. `known`:
/// cache of rounds of the same problem; it does not change the result. `executor`: refines the
/// worse changes in parallel; null: one after the other, with the same result.
void refine(Solution& found, Evaluator& evaluator, const Degrees& degrees, KnownRounds& known,
            int rounds, bool deep = false, Executor* executor = nullptr);

/// Refines each of `all` for the number of rounds that `rounds` returns for it. `executor`: as for
/// refine().
void refine_each(std::span<Solution> all, Evaluator& evaluator, const Degrees& degrees,
                 KnownRounds& known, const std::function<int(const Solution&)>& rounds,
                 Executor* executor);

}  // namespace swell::planner
