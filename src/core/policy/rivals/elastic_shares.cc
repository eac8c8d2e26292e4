// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/elastic_shares.h"

#include <algorithm>

namespace swell::policy {

namespace {

// Share of a curve's throughput that a plan must reach: its GPUs may lie on other nodes than the
// curve assumes.
constexpr double kTolerance = 0.95;

planner::Islands gpus_of(const plan::Layout& layout) {
  planner::Islands gpus;
  for (const plan::StageLayout& stage : layout.stages) planner::add_stage(gpus, stage);
  return gpus;
}

}  // namespace

const Curve* ElasticShare::curve(int type) const noexcept {
  return type < 0 || type >= static_cast<int>(curves.size())
             ? nullptr
             : curves[static_cast<std::size_t>(type)].get();
}

int ElasticShare::min_gpus(int type) const noexcept {
  const Curve* points = curve(type);
  if (!points) return 0;
  const int asked = type == users_type ? job->asked : 0;
  for (const planner::SymmetricRow& point : *points)
    if (point.throughput >= users_throughput * (1 - 1e-9) && job->may_have(point.gpus))
      return asked > 0 ? std::min(asked, point.gpus) : point.gpus;
  return asked;
}

const planner::SymmetricRow* ElasticShare::below() const noexcept {
  const Curve* points = curve(type());
  if (!points) return nullptr;
  const int now = planner::count(gpus), bottom = min_gpus(type());
  const planner::SymmetricRow* found = nullptr;
  for (const planner::SymmetricRow& point : *points)
    if (point.gpus < now && point.gpus >= bottom && bottom > 0 && job->may_have(point.gpus))
      found = &point;
  return found;
}

ElasticShares::ElasticShares(const ClusterView& view, const std::vector<Contender>& jobs,
                             CurveCache& curves)
    : pool_(view) {
  for (const Contender& job : jobs) {
    ElasticShare share;
    share.job = &job;
    share.gpus = job.held;
    if (!job.rigid) {
      share.model = std::make_unique<JobModel>(job.training, view.machines);
      for (int type = 0; type < static_cast<int>(view.machines->types().size()); ++type)
        share.curves.push_back(curves.get(job.training, view.machines, type, {}, job.max_gpus));
      share.users_throughput = share.model->throughput(job.training->basic);
      if (const planner::Islands users = gpus_of(job.training->basic); !users.empty())
        share.users_type = users.front().type;
      share.layout = job.training->current;
      if (share.users_throughput > 0)
        share.value = share.model->throughput(share.layout) / share.users_throughput;
    }
    shares_.push_back(std::move(share));
  }
}

plan::Layout ElasticShares::plan_on(ElasticShare& share, const planner::Islands& gpus,
                                    const planner::SymmetricRow& point) {
  plan::Layout layout = share.model->on(gpus, point.degrees);
  if (share.model->throughput(layout) >= kTolerance * point.throughput) return layout;
  plan::Layout other = share.model->best_on(gpus, {});
  return share.model->throughput(other) > share.model->throughput(layout) ? other : layout;
}

void ElasticShares::set(std::size_t job, plan::Layout layout, double value) {
  ElasticShare& share = shares_[job];
  undo_.push_back({job, share.gpus, share.layout, share.value, share.changed});
  pool_.give(share.gpus);
  share.gpus = gpus_of(layout);
  pool_.take(share.gpus);
  share.layout = std::move(layout);
  share.value = value;
  share.changed = true;
}

void ElasticShares::undo(std::size_t mark) {
  while (undo_.size() > mark) {
    Before& before = undo_.back();
    ElasticShare& share = shares_[before.job];
    pool_.give(share.gpus);
    pool_.take(before.gpus);
    share.gpus = std::move(before.gpus);
    share.layout = std::move(before.layout);
    share.value = before.value;
    share.changed = before.changed;
    undo_.pop_back();
  }
}

bool ElasticShares::start(std::size_t job, int type) {
  ElasticShare& share = shares_[job];
  GpuPool tried = pool_;
  if (share.job->rigid) {
    const int each = share.job->asked / share.job->nodes;
    const bool whole = share.job->nodes > 1 && each == pool_.per_node(type);
    const auto gpus = share.job->nodes == 1 ? tried.take_on_one(type, each)
                      : whole               ? tried.take_whole(type, share.job->nodes)
                                            : tried.take_packed(type, share.job->asked);
    plan::Layout layout = gpus ? users_plan_on(*share.job, *gpus) : plan::Layout{};
    if (layout.stages.empty()) return false;
    set(job, std::move(layout), 1);
    return true;
  }
  const int min = share.min_gpus(type);
  const Curve* curve = share.curve(type);
  if (min == 0 || !curve) return false;
  const auto point =
      std::find_if(curve->begin(), curve->end(),
                   [&](const planner::SymmetricRow& one) { return one.gpus == min; });
  const auto gpus = tried.take_packed(type, min);
  if (!gpus) return false;
  plan::Layout layout =
      point != curve->end() ? plan_on(share, *gpus, *point) : users_plan_on(*share.job, *gpus);
  const double value = share.model->throughput(layout) / share.users_throughput;
  if (value < kTolerance) return false;
  set(job, std::move(layout), value);
  return true;
}

bool ElasticShares::shrink(std::size_t job) {
  ElasticShare& share = shares_[job];
  const planner::SymmetricRow* point = share.below();
  if (!point) return false;
  planner::Islands kept, order = share.gpus;
  std::stable_sort(
      order.begin(), order.end(),
      [](const planner::Island& a, const planner::Island& b) { return a.count() > b.count(); });
  int left = point->gpus;
  for (planner::Island island : order) {
    while (island.count() > left)
      island.gpus &= ~(plan::GpuMask{1} << (63 - std::countl_zero(island.gpus)));
    left -= island.count();
    if (island.gpus != 0) kept.push_back(island);
  }
  plan::Layout layout = plan_on(share, kept, *point);
  const double value = share.model->throughput(layout) / share.users_throughput;
  if (value < kTolerance) return false;
  set(job, std::move(layout), value);
  return true;
}

bool ElasticShares::grow(std::size_t job, const planner::SymmetricRow& target, double min_gain) {
  ElasticShare& share = shares_[job];
  const int more = target.gpus - planner::count(share.gpus);
  GpuPool tried = pool_;
  planner::Islands gpus = share.gpus;
  if (more > 0) {
    const auto extra = tried.take_packed(share.type(), more, share.gpus);
    if (!extra) return false;
    planner::add_all(gpus, *extra);
  }
  plan::Layout layout = plan_on(share, gpus, target);
  const double value = share.model->throughput(layout) / share.users_throughput;
  if (value < share.value * (1 + min_gain)) return false;
  set(job, std::move(layout), value);
  return true;
}

}  // namespace swell::policy
