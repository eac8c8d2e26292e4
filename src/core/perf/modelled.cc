// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/modelled.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>
#include <vector>

#include "core/perf/equations.h"
#include "core/perf/injected_error.h"

namespace swell::perf {

namespace {

/// Makes the errors of this prediction independent of PerformanceModel's.
constexpr std::uint64_t kOwnErrors = 0x6d6f64656c6c6564;

double work_of(const models::Model& model, const Coefficients& coefficients) noexcept {
  const models::Chain chain(model);
  return model.layers + model.mtp_heads * chain.module_work() +
         (1 + model.mtp_heads) * coefficients.head_layers;
}

/// Spreads `divisions` equal divisions over stages so that the slowest stage is as fast as
/// possible, and returns its seconds. One division takes `each[i]` seconds on stage i.
double slowest_stage(const std::vector<double>& each, int divisions) {
  double speed = 0;
  for (const double seconds : each) speed += 1 / seconds;
  const double even = divisions / speed;  // lower bound for every split
  using Next = std::pair<double, std::size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  double slowest = 0;
  int left = divisions;
  for (std::size_t i = 0; i < each.size(); ++i) {
    const int whole = static_cast<int>(even / each[i]);
    left -= whole;
    slowest = std::max(slowest, whole * each[i]);
    next.emplace((whole + 1) * each[i], i);
  }
  for (; left > 0; --left) {
    const auto [seconds, stage] = next.top();
    next.pop();
    slowest = std::max(slowest, seconds);
    next.emplace(seconds + each[stage], stage);
  }
  return slowest;
}

}  // namespace

ModelledTime modelled_pipeline(int micro_batches, int stages, int chunks, double stage_s) noexcept {
  const double chunk_s = stage_s / chunks;
  return {micro_batches * stage_s, (stages - 1) * chunk_s,
          std::max(0, stages - micro_batches) * (chunks - 1) * chunk_s};
}

ModelledPredictor::ModelledPredictor(const models::Model& model,
                                     const Coefficients& coefficients) noexcept
    : model_(model),
      coefficients_(coefficients),
      work_(work_of(model, coefficients)),
      divisions_(std::max(1, static_cast<int>(std::lround(work_)))) {}

double ModelledPredictor::division_s(int type, int tp, double local_batch) const noexcept {
  const TypeCoefficients& k = coefficients_.types[static_cast<std::size_t>(type)];
  const double forward = tp_comp_fwd(k.comp_s, local_batch, 1, tp) + k.whole_s * local_batch;
  const double layer =
      with_launches(forward, k.launch_s) + with_launches(k.backward * forward, 2 * k.launch_s);
  return layer * work_ / divisions_;
}

ModelledTime ModelledPredictor::time(const Combination& degrees, int type) const noexcept {
  const int on_stage = (divisions_ + degrees.pp - 1) / degrees.pp;
  const double local_batch =
      static_cast<double>(model_.global_batch) / degrees.micro_batches / degrees.dp;
  const int chunks = degrees.chunks > 0 ? std::min(degrees.chunks, on_stage) : on_stage;
  return modelled_pipeline(degrees.micro_batches, degrees.pp, chunks,
                           on_stage * division_s(type, degrees.tp, local_batch));
}

ModelledTime ModelledPredictor::time(const plan::Layout& layout) const {
  std::vector<double> each;
  each.reserve(layout.stages.size());
  for (const plan::StageLayout& stage : layout.stages) {
    double slowest = 0;
    for (const plan::GroupLayout& group : stage.groups)
      slowest = std::max(slowest, division_s(group.type, stage.tp, group.local_batch));
    each.push_back(slowest);
  }
  ModelledTime time = modelled_pipeline(layout.micro_batches, layout.pp(), layout.chunks(),
                                        slowest_stage(each, divisions_));
  if (coefficients_.plan_error > 0) {
    const double factor = injected_error(layout, coefficients_.plan_error,
                                         coefficients_.plan_error_seed ^ kOwnErrors);
    time = {time.ideal * factor, time.bubble * factor, time.extra_bubble * factor};
  }
  return time;
}

}  // namespace swell::perf
