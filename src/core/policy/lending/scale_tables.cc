// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/scale_tables.h"

#include "base/mutex.h"
#include "core/planner/affinity.h"

namespace swell::policy {

ScaleTables::Known ScaleTables::find(const std::string& key) const {
  const Lock lock(mutex_);
  if (const auto found = recent_.find(key); found != recent_.end()) return found->second;
  const auto found = older_.find(key);
  if (found == older_.end()) return {};
  return recent_.insert(*found).first->second;
}

void ScaleTables::remember(const std::string& key, Known known) const {
  const Lock lock(mutex_);
  if (recent_.size() >= max_) {
    older_ = std::move(recent_);
    recent_.clear();
  }
  recent_.insert_or_assign(key, std::move(known));
}

Scaling ScaleTables::of(const Training& training, const plan::Layout& current,
                        const std::vector<cluster::GpuRef>& free, std::size_t max,
                        const cluster::Cluster& machines, Effort* effort, Care care) const {
  std::vector<cluster::GpuRef> order = planner::affinity_order(current, free, machines);
  if (order.size() > max) order.resize(max);
  auto names = std::make_shared<const Canonical>(training, current, order, machines);
  const bool thorough = effort == nullptr || quick_ == nullptr ||
                        (care == Care::thorough && effort->allows_thorough());
  const Known known = find(names->key());
  const bool spent = effort != nullptr && effort->any <= 0;
  if (known.table && (known.thorough || !thorough || spent))
    return {known.table, known.thorough, std::move(names)};
  if (spent) return {};

  const cluster::Cluster part = names->machines();
  const perf::PerformanceModel model(*training.model, part, *training.coefficients, sends_);
  const planner::Solver& solver = thorough ? *solver_ : *quick_;
  auto made = std::make_shared<planner::ScaleTable>(solver.solve(
      {model, names->current(), names->free(), training.consistency, training.takes_chunks}, {}));
  planner::add_modelled(*made, model);
  const std::shared_ptr<const planner::ScaleTable> table = std::move(made);
  if (effort != nullptr) {
    effort->any -= table->evaluated;
    if (thorough) effort->thorough -= table->evaluated;
  }
  remember(names->key(), {table, thorough});
  return {table, thorough, std::move(names)};
}

}  // namespace swell::policy
