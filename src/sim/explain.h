// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "sim/outcome.h"
#include "sim/queue.h"
#include "sim/state.h"

namespace swell::sim {

/// Records the changes of one simulation where Setup::explain is set. Each is followed from the
/// moment at which it takes effect to the job's next change, or its end: it costs the time in
/// excess of what the work of that time would have taken on another plan (Change::own_delay_s), by
/// the judge.

/// Ends the job's open change, and opens one by which it goes to the plan `next`. REQUIRES: the job
/// runs, and its companions are those that it has after the change.
void note_change(State& state, Job& job, const plan::Layout& next, Cause cause);
/// Ends the job's open change, as its training ends or goes back into the queue.
void end_change(State& state, Job& job);
/// Counts `still_s` seconds in which the job does not train, and `idle_gpu_s` of GPU-time that it
/// holds without use, to its open change, and in any case to its outcome and all.
void note_idle(State& state, Job& job, double still_s, double idle_gpu_s);
/// Counts `passed_s` seconds in which jobs waited for what is lent to others to the changes that
/// lent it.
void note_waiting(State& state, const std::vector<Start>& waiting, double passed_s);

/// Changes of one kind and reason, summed up.
struct ChangeSum {
  Change::Kind kind = Change::Kind::lent;
  Cause::Why why = Cause::Why::gain;
  int changes = 0;
  double lost_s = 0, gained_s = 0;  ///< sums of own delays above and below 0
  double others_s = 0, still_s = 0, idle_gpu_s = 0;
};

/// A change, and the seed, counted from 0, in whose run it was.
struct SeedChange {
  std::size_t seed = 0;
  Change change;
};

/// Costs and gains of the decisions of one policy.
struct Explanation {
  std::vector<SeedChange> costliest;  ///< that cost most job time, at most kCostliest
  std::vector<ChangeSum> sums;        ///< the kind that cost most first
  /// Means over jobs: time without GPUs, time with GPUs and without training, and the rest.
  double waited_s = 0, still_s = 0, trained_s = 0;
};
inline constexpr std::size_t kCostliest = 10;

Explanation explain(const std::vector<Outcome>& outcomes);

/// "lent", "reclaimed", ...
const char* text_of(Change::Kind kind) noexcept;
/// Why a change was made, in words.
std::string text_of(const Cause& cause);

Json to_json(const Explanation& explanation);

}  // namespace swell::sim
