// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/told_plan.h"

#include <algorithm>
#include <vector>

#include "core/plan/chunks.h"

namespace swell::controller {

namespace {

/// Whether two plans cut the model alike, whichever GPUs they use.
bool cut_alike(const plan::Plan& a, const plan::Plan& b) {
  if (a.stages.size() != b.stages.size()) return false;
  // Only a plan that lists its chunks tells how many MTP heads the model has.
  const int mtp_heads = std::max(plan::mtp_heads_of(a), plan::mtp_heads_of(b));
  const auto units_of = [&](const plan::Plan& plan, std::size_t i) {
    const plan::Stage& stage = plan.stages[i];
    if (!stage.chunks.empty()) return stage.chunks;
    const int embedding = i == 0 ? 1 : 0;
    const int heads = i + 1 == plan.stages.size() ? 1 + 2 * mtp_heads : 0;
    return std::vector<int>{stage.layers + embedding + heads};
  };
  for (std::size_t i = 0; i < a.stages.size(); ++i) {
    const plan::Stage &one = a.stages[i], &other = b.stages[i];
    if (one.layers != other.layers || one.tp != other.tp || one.dp() != other.dp() ||
        units_of(a, i) != units_of(b, i))
      return false;
  }
  return true;
}

}  // namespace

void ToldPlan::decide(plan::Plan plan, int generation) {
  plan_ = std::move(plan);
  generation_ = generation;
  is_told_ = awaits_report_ = true;
  is_running_ = false;
  version_.change();
}

void ToldPlan::refuse() {
  plan_.reset();
  awaits_report_ = is_running_ = false;
  version_.change();
}

void ToldPlan::run(int generation) {
  if (!awaits_report_ || is_running_ || generation <= generation_) return;
  is_running_ = true;
  version_.change();
}

/// Whether another plan was seen to run than the last one that was decided for so many GPUs.
bool ToldPlan::is_replaced_by(const plan::Plan& seen, int generation, bool says_chunks) const {
  return plan_ && generation > generation_ && !makes_own_plans_ &&
         (says_chunks || !plan_->has_chunks()) && plan_->gpu_count() == seen.gpu_count() &&
         !cut_alike(*plan_, seen);
}

bool ToldPlan::see(const plan::Plan& seen, int generation, bool says_chunks) {
  version_.change();
  if (is_replaced_by(seen, generation, says_chunks)) {
    if (is_told_) return makes_own_plans_ = true;
    plan_.reset();
  }
  if (generation > generation_) awaits_report_ = is_running_ = false;
  return false;
}

}  // namespace swell::controller
