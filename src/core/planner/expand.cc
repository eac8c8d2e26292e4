// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/expand.h"

#include <fmt/format.h>

namespace swell::planner {

namespace {

void visit_new_stage(const plan::Layout& from, const plan::StageLayout& stage, const Islands& idle,
                     const Visit& visit) {
  Candidate last{from, idle, Candidate::Kind::pp, from.pp()};
  last.layout.stages.push_back(stage);
  visit(std::move(last));
  Candidate first{{from.micro_batches, {stage}}, idle, Candidate::Kind::pp, 0};
  first.layout.stages.insert(first.layout.stages.end(), from.stages.begin(), from.stages.end());
  visit(std::move(first));
}

/// Visits new stages that do not change any layer's arithmetic: FlexTrain's elastic pipeline.
void expand_exactly(const plan::Layout& from, const Islands& more, const Visit& visit) {
  if (!is_uniform(from)) return;
  const plan::StageLayout& pattern = from.stages.front();
  plan::Layout layout = from;
  Islands idle = more;
  for (;;) {
    plan::StageLayout stage{0, pattern.tp, {}};
    if (take_groups(stage, idle, pattern.tp, pattern.dp()) < pattern.dp()) return;
    for (std::size_t j = 0; j < stage.groups.size(); ++j)
      stage.groups[j].local_batch = pattern.groups[j].local_batch;
    visit_new_stage(layout, stage, idle, visit);
    layout.stages.push_back(std::move(stage));
  }
}

}  // namespace

std::string Candidate::story(int cp) const {
  const plan::StageLayout& changed = layout.stages[static_cast<std::size_t>(stage)];
  const std::string shape = fmt::format("dp{} tp{}", changed.dp(), changed.tp / cp);
  switch (kind) {
    case Kind::pp: return fmt::format("PP: new stage {} with {}", stage, shape);
    case Kind::dp: return fmt::format("DP: stage {} grows to {}", stage, shape);
    case Kind::tp: return fmt::format("TP: stage {} becomes {}", stage, shape);
    case Kind::moved: return fmt::format("moved GPUs between stages: stage {} is {}", stage, shape);
  }
  return {};
}

bool is_uniform(const plan::Layout& layout) noexcept {
  const plan::StageLayout& first = layout.stages.front();
  for (const plan::StageLayout& stage : layout.stages) {
    if (stage.tp != first.tp || stage.dp() != first.dp()) return false;
    for (std::size_t j = 0; j < stage.groups.size(); ++j)
      if (stage.groups[j].local_batch != first.groups[j].local_batch) return false;
  }
  return true;
}

void expand(const plan::Layout& from, const Islands& more, const Degrees& degrees,
            Consistency consistency, const Visit& visit) {
  if (consistency == Consistency::exact) return expand_exactly(from, more, visit);
  for (int tp : degrees.tp) {
    plan::StageLayout stage{0, tp, {}};
    Islands idle = more;
    if (take_groups(stage, idle, tp, degrees.max_dp, degrees.dp_step) == 0)
      break;  // larger degrees do not fit either
    visit_new_stage(from, stage, idle, visit);
  }
  for (int i = 0; i < from.pp(); ++i) {
    const plan::StageLayout& old = from.stages[static_cast<std::size_t>(i)];
    if (old.dp() == degrees.max_dp && old.tp == degrees.tp.back()) continue;
    for (int tp : degrees.tp) {
      Candidate candidate{{from.micro_batches, {}},
                          more,
                          tp == old.tp ? Candidate::Kind::dp : Candidate::Kind::tp,
                          i};
      plan::StageLayout stage{0, tp, {}};
      if (tp == old.tp) stage.groups = old.groups;  // the ranks keep their places
      else add_stage(candidate.idle, old);
      if (take_groups(stage, candidate.idle, tp, degrees.max_dp - stage.dp(), degrees.dp_step) == 0)
        continue;
      candidate.layout.stages = from.stages;
      candidate.layout.stages[static_cast<std::size_t>(i)] = std::move(stage);
      visit(std::move(candidate));
    }
  }
}

}  // namespace swell::planner
