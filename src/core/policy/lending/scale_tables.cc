// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/scale_tables.h"

#include "core/planner/affinity.h"

namespace swell::policy {

std::shared_ptr<const planner::ScaleTable> ScaleTables::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = recent_.find(key); found != recent_.end()) return found->second;
  const auto found = older_.find(key);
  if (found == older_.end()) return nullptr;
  return recent_.insert(*found).first->second;
}

Scaling ScaleTables::of(const Training& training, const plan::Layout& current,
                        const std::vector<cluster::GpuRef>& free, std::size_t max,
                        const cluster::Cluster& machines) const {
  std::vector<cluster::GpuRef> order = planner::affinity_order(current, free, machines);
  if (order.size() > max) order.resize(max);
  auto names = std::make_shared<const Canonical>(training, current, order, machines);
  if (auto known = find(names->key())) return {std::move(known), std::move(names)};

  const cluster::Cluster part = names->machines();
  const perf::PerformanceModel model(*training.model, part, *training.coefficients, sends_);
  auto table = std::make_shared<const planner::ScaleTable>(
      solver_->solve({model, names->current(), names->free(), training.consistency}, {}));
  const std::lock_guard lock(mutex_);
  if (recent_.size() >= max_) {
    older_ = std::move(recent_);
    recent_.clear();
  }
  recent_.emplace(names->key(), table);
  return {std::move(table), std::move(names)};
}

}  // namespace swell::policy
