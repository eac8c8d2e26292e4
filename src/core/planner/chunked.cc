// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/chunked.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <string_view>
#include <vector>

#include "core/count_of.h"
#include "core/perf/chunk_costs.h"
#include "core/plan/max_passes.h"
#include "core/planner/placement.h"
#include "core/planner/schedule_search.h"
#include "core/planner/scheduled_plan.h"
#include "core/schedule/text.h"

namespace swell::planner {

namespace {

constexpr int kMaxChunks = 4;
/// Gain that a searched schedule must bring to be chosen.
constexpr double kGain = 1.01;
/// Gain that a schedule with delayed weight gradients must bring: the delay itself costs some time
/// (docs/engine.md), which a profile of whole backward passes does not show.
constexpr double kSplitGain = 1.03;
/// Maximum number of passes of one kind for a schedule search. More passes make each prediction
/// slower, and such pipelines have many micro-batches, hence few bubbles.
constexpr long kMaxSearched = 2048;
constexpr int kChanges = 100;  ///< ScheduleProblem::changes

bool has_layers(const plan::Layout& layout) {
  return std::all_of(layout.stages.begin(), layout.stages.end(),
                     [](const plan::StageLayout& stage) { return stage.layers > 0; });
}

std::string story(const plan::Layout& layout, std::string_view schedule, std::string_view rule) {
  return fmt::format("PP: {} of {}, {}, placed by {}", count_of(layout.pp(), "stage"),
                     count_of(layout.chunks(), "chunk"), schedule, rule);
}

/// Returns the time of the busiest stage's passes in seconds: no schedule of `costs` is faster.
double busiest_s(const schedule::Costs& costs) {
  const auto stages = static_cast<std::size_t>(costs.shape.stages);
  const auto chunks = static_cast<std::size_t>(costs.shape.chunks);
  double busiest = 0;
  for (std::size_t i = 0; i < stages; ++i) {
    double pass = 0;
    for (std::size_t c = i * chunks; c < (i + 1) * chunks; ++c)
      for (const double seconds : costs.chunks[c].seconds) pass += seconds;
    busiest = std::max(busiest, pass * costs.shape.micro_batches + costs.finish_s[i]);
  }
  return busiest;
}

/// Replaces `best` by a searched schedule that is faster by kGain, or by kSplitGain if only the
/// searched one has weight passes. If `best` is empty, the schedule must take less than `unless`
/// seconds.
void search(Evaluator& evaluator, const std::vector<Placement>& placed, double unless,
            std::optional<Solution>& best, Executor& executor) {
  const double before_s = best ? best->seconds : unless;
  ScheduleProblem problem;
  problem.changes = kChanges;
  std::vector<const Placement*> from;
  double least = std::numeric_limits<double>::infinity();
  for (const Placement& one : placed) {
    if (static_cast<long>(one.layout.pp()) * one.layout.chunks() * one.layout.micro_batches >
        kMaxSearched)
      continue;
    from.push_back(&one);
    problem.choices.push_back(perf::chunk_costs(evaluator.perf(), one.layout));
    least = std::min(least, busiest_s(problem.choices.back()));
  }
  if (from.empty() || least * kGain >= before_s) return;
  problem.limit_bytes = memory_of_stages(evaluator.perf(), from.front()->layout);
  const bool split_before = best && best->layout.schedule != "interleaved";
  for (const bool splits : {true, false}) {
    if (evaluator.over()) return;
    problem.may_split_weights = splits;
    const auto found = search_schedule(problem, executor, evaluator.budget());
    if (!found) return;
    evaluator.count(found->evaluated);
    const Placement& placement = *from[found->choice];
    const bool has_name = found->name != "search";
    plan::Layout layout = placement.layout;
    layout.schedule = has_name ? found->name : schedule::to_text(found->schedule);
    const double seconds =
        layout.schedule.size() <= schedule::kMaxText && evaluator.memory().fits(layout)
            ? evaluator.seconds(layout)
            : std::numeric_limits<double>::infinity();
    const bool splits_more = found->schedule.splits_weights() && !split_before;
    if (seconds * (splits_more ? kSplitGain : kGain) < before_s) {
      const std::string why = story(layout, has_name ? found->name : "searched", placement.rule);
      best = Solution{std::move(layout), {}, seconds, why};
      return;
    }
    if (!splits_more) return;  // schedules without weight passes would not be faster either
  }
}

}  // namespace

std::optional<Solution> chunked(Evaluator& evaluator, const plan::Layout& skeleton, double unless,
                                Executor* executor) {
  std::optional<Solution> best;
  double best_s = unless;  // a plan must be faster than this; a simple schedule by any margin
  std::vector<Placement> kept;
  const long passes = static_cast<long>(skeleton.pp()) * skeleton.micro_batches;
  for (int chunks = 1; chunks <= kMaxChunks && passes * chunks <= plan::kMaxPasses; ++chunks) {
    // More chunks than units would leave chunks empty, which gains nothing.
    if (skeleton.pp() * chunks > evaluator.perf().chain().units() || evaluator.over()) break;
    for (Placement& placed : placements(evaluator.perf(), skeleton, chunks)) {
      if (!has_layers(placed.layout)) continue;
      for (const char* name : {"interleaved", "zero-bubble"}) {
        placed.layout.schedule = name;
        if (!evaluator.memory().fits(placed.layout)) continue;
        const bool is_simple = placed.layout.schedule == "interleaved";
        // Compare by a time that is longer for schedules that are harder to follow.
        const double seconds = evaluator.seconds(placed.layout);
        const double counts_s = is_simple ? seconds : seconds * kSplitGain;
        if (!(counts_s < best_s)) continue;
        best_s = counts_s;
        best = Solution{placed.layout, {}, seconds, story(placed.layout, name, placed.rule)};
      }
      kept.push_back(std::move(placed));
    }
  }
  if (executor != nullptr) search(evaluator, kept, unless, best, *executor);
  return best;
}

}  // namespace swell::planner
