// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/evaluator.h"

#include <algorithm>

#include "core/planner/balance.h"

namespace swell::planner {

namespace {

constexpr int kAnyLayers = 1 << 30;
constexpr double kWorthwhile = 1 - 1e-9;
// The bound's sums round differently from the time itself.
constexpr double kBoundSlack = 1 + 1e-12;

}  // namespace

Evaluator::Evaluator(const perf::PerformanceModel& perf, int micro_batch, bool keep_samples)
    : perf_(perf),
      memory_(perf),
      micro_batch_(micro_batch),
      keep_samples_(keep_samples),
      dp_step_(dp_step_of(perf.model())),
      passes_(perf, micro_batch) {}

bool Evaluator::split_samples(plan::StageLayout& stage) {
  const int dp = stage.dp();
  if (dp < 1 || dp > micro_batch_) return false;
  const int type = stage.groups[0].type;
  const bool alike = std::all_of(stage.groups.begin(), stage.groups.end(),
                                 [&](const auto& group) { return group.type == type; });
  if (alike) {
    const int each = micro_batch_ / dp;
    int more = micro_batch_ % dp;
    for (plan::GroupLayout& group : stage.groups) group.local_batch = each + (more-- > 0 ? 1 : 0);
    return true;
  }
  cost_.clear();
  cap_.assign(static_cast<std::size_t>(dp), micro_batch_);
  for (const plan::GroupLayout& group : stage.groups)
    cost_.push_back(layer_time(group.type, stage.tp, 1));
  if (!min_max_split(micro_batch_, cost_, cap_, share_)) return false;
  for (std::size_t j = 0; j < stage.groups.size(); ++j) stage.groups[j].local_batch = share_[j];
  return true;
}

bool Evaluator::balance(plan::Layout& layout) {
  const int pp = layout.pp();
  const int layers = perf_.model().layers;
  layout.schedule.clear();
  if (pp < 1 || pp > layers) return false;
  for (plan::StageLayout& stage : layout.stages)
    if (stage.dp() % dp_step_ != 0 || (!keep_samples_ && !split_samples(stage))) return false;
  cost_.clear();
  cap_.clear();
  for (int i = 0; i < pp; ++i) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
    double slowest = 0;
    int max = kAnyLayers, seen_type = -1, seen_batch = -1;
    for (const plan::GroupLayout& group : stage.groups) {
      if (group.type == seen_type && group.local_batch == seen_batch) continue;
      seen_type = group.type;
      seen_batch = group.local_batch;
      slowest = std::max(slowest, layer_time(group.type, stage.tp, group.local_batch));
      max = std::min(max, memory_.max_layers(i, pp, layout.micro_batches, stage.tp,
                                             group.local_batch, group.type, stage.dp()));
    }
    cost_.push_back(slowest);
    cap_.push_back(max);
  }
  if (perf_.chain().mtp_heads() > 0) {
    // The heads make the last stage much fuller, so its layers are added on top of them.
    std::vector<double> base(static_cast<std::size_t>(pp), 0);
    plan::StageLayout& last = layout.stages.back();
    last.layers = 0;
    last.chunks.clear();
    base.back() = perf_.stage_times(last, {pp == 1, true}).comp();
    if (!min_max_split(layers, cost_, base, cap_, share_)) return false;
  } else {
    if (!min_max_split(layers, cost_, cap_, share_)) return false;
    lighten(cost_, cap_, share_);
  }
  for (std::size_t i = 0; i < layout.stages.size(); ++i) {
    layout.stages[i].layers = share_[i];
    layout.stages[i].chunks.clear();
  }
  return true;
}

double Evaluator::speed(int type) const noexcept {
  const perf::TypeCoefficients& k = perf_.coefficients().types[static_cast<std::size_t>(type)];
  return 1 / (k.comp_s * (1 + k.backward));
}

double Evaluator::ideal_seconds(const Islands& gpus, int used, int micro_batches) const {
  double fastest = 0;
  for (const Island& island : gpus) fastest = std::max(fastest, speed(island.type));
  const double layers = perf_.model().layers;  // double: products of hostile numbers exceed int
  return layers * micro_batch_ * micro_batches / (fastest * used);
}

double Evaluator::settle(plan::Layout& layout, double seconds) {
  if (layout.is_scheduled()) return seconds;
  for (bool helped = true; helped;) {
    helped = false;
    for (plan::StageLayout& from : layout.stages)
      for (plan::StageLayout& to : layout.stages) {
        if (over()) return seconds;
        if (&from == &to || from.layers < 2) continue;
        --from.layers;
        ++to.layers;
        const double now = memory_.fits(layout) ? this->seconds(layout) : seconds;
        if (now < seconds * kWorthwhile) {
          seconds = now;
          helped = true;
        } else {
          ++from.layers;
          --to.layers;
        }
      }
  }
  return seconds;
}

double Evaluator::seconds(const plan::Layout& layout) {
  ++evaluated_;
  return perf_.iteration_time(layout, passes_).total();
}

double Evaluator::finish(plan::Layout& layout, double unless) {
  constexpr double none = std::numeric_limits<double>::infinity();
  if (over() || !balance(layout)) return none;
  // A bound without synchronization and optimizer already rejects most plans.
  double sum = 0, slowest = 0;
  for (std::size_t i = 0; i < share_.size(); ++i) {
    const double comp = share_[i] * cost_[i];
    sum += comp;
    slowest = std::max(slowest, comp);
  }
  if (sum + (layout.micro_batches - 1) * slowest >= unless * kBoundSlack) return none;
  return seconds(layout);
}

}  // namespace swell::planner
