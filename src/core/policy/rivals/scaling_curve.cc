// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/scaling_curve.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/mutex.h"

namespace swell::policy {

namespace {

constexpr std::size_t kMaxKept = 4096;  // curves in the cache; some kilobytes each

/// Returns the first `gpus` GPUs of `type` in the order of nodes, as if the cluster were empty.
planner::Islands packed(const cluster::Cluster& machines, int type, int gpus) {
  planner::Islands islands;
  for (int node = 0; node < static_cast<int>(machines.nodes().size()) && gpus > 0; ++node)
    for (int index = 0; index < static_cast<int>(machines.node(node).gpus.size()) && gpus > 0;
         ++index)
      if (machines.type_of({node, index}) == type) {
        planner::add_to(islands, node, type, plan::GpuMask{1} << index);
        --gpus;
      }
  return islands;
}

Curve frontier(Curve points) {
  std::sort(points.begin(), points.end(),
            [](const planner::SymmetricRow& a, const planner::SymmetricRow& b) {
              return a.gpus != b.gpus ? a.gpus < b.gpus : a.throughput > b.throughput;
            });
  Curve curve;
  for (const planner::SymmetricRow& point : points)
    if (curve.empty() || point.throughput > curve.back().throughput) curve.push_back(point);
  return curve;
}

}  // namespace

planner::SymmetricSpace users_cell(const Training& training) noexcept {
  if (training.basic.stages.empty()) return {};
  return {training.basic.pp(), training.basic.stages.front().tp};
}

JobModel::JobModel(std::shared_ptr<const Training> training,
                   std::shared_ptr<const cluster::Cluster> machines)
    : training_(std::move(training)),
      machines_(std::move(machines)),
      coefficients_(training_->coefficients
                        ? training_->coefficients
                        : std::make_shared<perf::Coefficients>(
                              perf::expected_coefficients(*training_->model, *machines_))),
      perf_(*training_->model, *machines_, *coefficients_, perf::Sends::counted) {}

planner::Evaluator& JobModel::evaluator(int micro_batches) {
  const auto known = evaluators_.find(micro_batches);
  if (known != evaluators_.end()) return known->second;
  return evaluators_
      .try_emplace(micro_batches, perf_,
                   std::max(1, training_->model->global_batch / micro_batches))
      .first->second;
}

plan::Layout JobModel::on(planner::Islands gpus, perf::Combination degrees) {
  plan::Layout layout{degrees.micro_batches, {}};
  for (int i = 0; i < degrees.pp; ++i) {
    plan::StageLayout stage{0, degrees.tp, {}};
    if (planner::take_groups(stage, gpus, degrees.tp, degrees.dp) < degrees.dp) return {};
    layout.stages.push_back(std::move(stage));
  }
  if (!evaluator(degrees.micro_batches).balance(layout)) return {};
  return layout;
}

plan::Layout JobModel::best_on(const planner::Islands& gpus, planner::SymmetricSpace space) {
  const int micro_batches = training_->basic.micro_batches;
  planner::Evaluator& users = evaluator(micro_batches);
  const auto degrees = planner::degrees_for(*training_->model, users.micro_batch());
  planner::Solution found = planner::best_symmetric(users, gpus, micro_batches, degrees, space);
  if (!std::isfinite(found.seconds)) return {};
  return std::move(found.layout);
}

double JobModel::throughput(const plan::Layout& layout) {
  return layout.stages.empty()
             ? 0
             : training_->model->global_batch / perf_.iteration_time(layout).total();
}

Curve JobModel::curve(int type, planner::SymmetricSpace space, int max, Sizes sizes) {
  Curve points;
  int all = 0;
  for (const cluster::Node& node : machines_->nodes())
    all += static_cast<int>(std::count(node.gpus.begin(), node.gpus.end(), type));
  max = std::min(max, all);
  const int layers = training_->model->layers;
  const int users = training_->basic.micro_batches, global_batch = training_->model->global_batch,
            samples = global_batch / users;
  std::vector<int> tps = planner::degrees_for(*training_->model, samples).tp;
  if (space.tp != 0) tps = {space.tp};
  for (int tp : tps)
    for (int dp = 1; dp <= global_batch && dp * tp <= max; ++dp) {
      const bool as_the_user = dp <= samples;
      if ((as_the_user ? samples : global_batch) % dp != 0) continue;
      const int first = space.pp != 0 ? space.pp : 1, last = space.pp != 0 ? space.pp : layers;
      for (int pp = first; pp <= std::min(last, layers) && pp * dp * tp <= max; ++pp) {
        perf::Combination degrees{pp, dp, tp, as_the_user ? users : global_batch / dp};
        if (sizes == Sizes::powers_of_two &&
            !std::has_single_bit(static_cast<unsigned>(degrees.gpus())) &&
            degrees.gpus() != training_->basic.gpu_count())
          continue;
        const planner::Islands gpus = packed(*machines_, type, degrees.gpus());
        plan::Layout layout = on(gpus, degrees);
        while (layout.stages.empty() && global_batch % (2 * degrees.micro_batches * dp) == 0) {
          degrees.micro_batches *= 2;
          layout = on(gpus, degrees);
        }
        if (!layout.stages.empty())
          points.push_back({{degrees.gpus(), throughput(layout)}, degrees});
      }
    }
  return frontier(std::move(points));
}

std::shared_ptr<const Curve> CurveCache::get(
    const std::shared_ptr<const Training>& training,
    const std::shared_ptr<const cluster::Cluster>& machines, int type,
    planner::SymmetricSpace space, int max, Sizes sizes) {
  const Key key{training->model.get(),
                training->coefficients.get(),
                machines.get(),
                type,
                space.pp,
                space.tp,
                max,
                training->basic.micro_batches,
                training->basic.micro_batch(),
                sizes == Sizes::any ? 0 : training->basic.gpu_count()};
  {
    const Lock guard(lock_);
    const auto known = entries_.find(key);
    if (known != entries_.end()) return known->second.curve;
  }
  auto curve =
      std::make_shared<const Curve>(JobModel(training, machines).curve(type, space, max, sizes));
  const Lock guard(lock_);
  if (entries_.size() >= kMaxKept) entries_.clear();
  entries_.insert_or_assign(key, Entry{training->model, training->coefficients, machines, curve});
  return curve;
}

}  // namespace swell::policy
