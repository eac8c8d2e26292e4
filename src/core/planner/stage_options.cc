// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/stage_options.h"

#include <algorithm>
#include <map>

#include "core/planner/expand.h"

namespace swell::planner {

namespace {

/// Visits every way to distribute `samples` over the types from `next` on, with at least one sample
/// for each group.
void share_out(const std::vector<std::pair<int, int>>& groups, std::size_t next, int samples,
               std::vector<std::pair<int, int>>& shares, const std::function<void()>& visit) {
  const auto [type, count] = groups[next];
  if (next + 1 == groups.size()) {
    if (samples < count) return;
    shares.emplace_back(type, samples);
    visit();
    shares.pop_back();
    return;
  }
  for (int mine = count; mine < samples; ++mine) {
    shares.emplace_back(type, mine);
    share_out(groups, next + 1, samples - mine, shares, visit);
    shares.pop_back();
  }
}

/// Sets the samples of each group: as evenly as possible within a type, larger ones first.
void set_samples(plan::StageLayout& stage, const std::vector<std::pair<int, int>>& shares) {
  for (const auto& [type, samples] : shares) {
    int groups = 0;
    for (const auto& group : stage.groups) groups += group.type == type ? 1 : 0;
    int more = samples % groups;
    for (auto& group : stage.groups)
      if (group.type == type) group.local_batch = samples / groups + (more-- > 0 ? 1 : 0);
  }
}

/// Returns the layout of an option, with its groups in the order of the islands.
plan::StageLayout stage_of(int tp, const std::vector<int>& taken, Islands& left,
                           const Islands& gpus) {
  plan::StageLayout stage{0, tp, {}};
  for (std::size_t c = 0; c < gpus.size(); ++c) {
    Islands one = {left[c]};
    take_groups(stage, one, tp, taken[c] / tp);
    left[c].gpus = one.empty() ? 0 : one[0].gpus;
  }
  return stage;
}

}  // namespace

std::vector<StageOption> stage_options(const Problem& problem, Evaluator& evaluator,
                                       const Islands& gpus) {
  const bool exact = problem.consistency == Consistency::exact;
  const plan::StageLayout& pattern = problem.current.stages.front();
  std::vector<StageOption> options;
  if (exact && !is_uniform(problem.current)) return options;
  const Degrees degrees = degrees_for(evaluator.perf().model(), evaluator.micro_batch());
  for (int tp : degrees.tp) {
    if (exact && tp != pattern.tp) continue;
    std::vector<int> taken(gpus.size(), 0);
    while (!evaluator.over()) {
      std::size_t c = 0;  // next combination: count up in steps of one group of each island
      while (c < taken.size() && (taken[c] += tp) > gpus[c].count()) taken[c++] = 0;
      if (c == taken.size()) break;
      std::map<int, int> by_type;
      int dp = 0;
      for (std::size_t k = 0; k < taken.size(); ++k) {
        dp += taken[k] / tp;
        if (taken[k] > 0) by_type[gpus[k].type] += taken[k] / tp;
      }
      if (dp > evaluator.micro_batch() || !degrees.divides(dp) || (exact && dp != pattern.dp()))
        continue;
      const std::vector<std::pair<int, int>> groups(by_type.begin(), by_type.end());
      std::vector<std::pair<int, int>> shares;
      share_out(groups, 0, evaluator.micro_batch(), shares, [&] {
        StageOption option{tp, taken, shares, {}};
        for (std::size_t t = 0; t < shares.size(); ++t)
          option.fullest.emplace_back(shares[t].first,
                                      (shares[t].second + groups[t].second - 1) / groups[t].second);
        Islands left = gpus;
        plan::StageLayout stage = stage_of(tp, taken, left, gpus);
        set_samples(stage, shares);
        stage.layers = 1;
        const perf::StageTimes times = evaluator.perf().stage_times(stage);
        option.comp = times.comp();
        option.bwd = times.bwd;
        option.extra = times.extra();
        if (evaluator.perf().chain().mtp_heads() > 0) {
          const perf::StageTimes last = evaluator.perf().stage_times(stage, {false, true});
          option.heads_comp = last.comp() - option.comp;
        }
        options.push_back(std::move(option));
      });
    }
  }
  return options;
}

plan::StageLayout build_stage(const StageOption& option, int layers, Islands& left,
                              const Islands& gpus) {
  plan::StageLayout stage = stage_of(option.tp, option.gpus, left, gpus);
  stage.layers = layers;
  set_samples(stage, option.samples);
  return stage;
}

}  // namespace swell::planner
