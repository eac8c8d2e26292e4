// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/arena_jobs.h"

#include <algorithm>
#include <cmath>

#include "core/policy/rivals/place_sizes.h"

namespace swell::policy {

namespace {

// Exponent with which ratios of fairness are summed: the worst ratio decides, and if it cannot be
// improved, the next ones.
constexpr double kWorstFirst = 8;
// Assumed time left of a job on the GPUs that its user asked for, if it is not known.
constexpr double kUnknownLeft_s = 3600;

/// Returns the table's row of at most `gpus` GPUs; null if there is none.
const planner::SymmetricRow* row_at(const Curve& curve, int gpus) noexcept {
  const planner::SymmetricRow* found = nullptr;
  for (const planner::SymmetricRow& row : curve)
    if (row.gpus <= gpus) found = &row;
  return found;
}

}  // namespace

const std::vector<ArenaShare>& ArenaJob::rows(int type) const noexcept {
  static const std::vector<ArenaShare> none;
  const auto at = static_cast<std::size_t>(type);
  return type < 0 || at >= shares.size() ? none : shares[at];
}

ArenaJobs::ArenaJobs(const ClusterView& view, const std::vector<Contender>& jobs,
                     const ArenaJobsOptions& options, CurveCache& curves)
    : options_(options),
      now_s_(view.now_s),
      types_(static_cast<int>(view.machines->types().size())),
      pool_(view) {
  for (const Contender& job : jobs) {
    ArenaJob made;
    made.job = &job;
    made.gpus = job.held;
    if (job.training) {
      made.model = std::make_unique<JobModel>(job.training, view.machines);
      made.users_throughput = made.model->throughput(job.training->basic);
      made.layout = job.training->current;
      planner::Islands users;
      for (const plan::StageLayout& stage : job.training->basic.stages)
        planner::add_stage(users, stage);
      if (!users.empty()) made.users_type = users.front().type;
    }
    if (!job.rigid) {
      const int max = options.largest > 0
                          ? std::min(job.max_gpus, std::max(options.largest, job.asked))
                          : job.max_gpus;
      for (int type = 0; type < types_; ++type) {
        std::shared_ptr<const Curve> table;
        if (!options.plans)
          table = curves.get(job.training, view.machines, type, {1, 1}, max, Sizes::powers_of_two);
        // If no plan with data parallelism alone fits memory, take the user's own degrees.
        if (table && table->empty())
          table = curves.get(job.training, view.machines, type, users_cell(*job.training), max,
                             Sizes::powers_of_two);
        if (!table)
          table = curves.get(job.training, view.machines, type, {}, max, Sizes::powers_of_two);
        made.tables.push_back(std::move(table));
      }
    }
    if (made.launched()) {
      const Curve* table = made.tables.empty() || options.plans
                               ? nullptr
                               : made.tables[static_cast<std::size_t>(made.type())].get();
      const planner::SymmetricRow* row = table ? row_at(*table, made.count()) : nullptr;
      made.throughput = row          ? row->throughput
                        : made.model ? made.model->throughput(made.layout)
                                     : 0;
    }
    jobs_.push_back(std::move(made));
  }
  for (ArenaJob& job : jobs_) {
    if (job.tables.empty()) continue;
    if (job.users_type >= 0) {
      const Curve& table = *job.tables[static_cast<std::size_t>(job.users_type)];
      const int fair = std::max(1, pool_.all(job.users_type) / static_cast<int>(jobs_.size()));
      const planner::SymmetricRow* row = row_at(table, fair);
      if (!row && !table.empty()) row = &table.front();
      if (row) job.fair_throughput = row->throughput;
    }
    set_needed(job);
    for (int type = 0; type < types_; ++type) {
      std::vector<ArenaShare>& rows = job.shares.emplace_back();
      for (const planner::SymmetricRow& row : *job.tables[static_cast<std::size_t>(type)])
        if (job.job->may_have(row.gpus) && row.throughput >= job.needed_throughput)
          rows.push_back({type, row.gpus, row.throughput, row.degrees});
    }
  }
}

void ArenaJobs::set_needed(ArenaJob& job) const noexcept {
  const Contender& its = *job.job;
  if (!keeps_deadlines(options_.objective) || its.deadline_s == kNoDeadline ||
      its.remaining_samples < 0 || its.deadline_s <= now_s_)
    return;
  // Eq. 6. A job that is late with every share runs as one without a deadline.
  const double needed = its.remaining_samples / (its.deadline_s - now_s_);
  for (const auto& table : job.tables)
    if (!table->empty() && table->back().throughput >= needed) job.needed_throughput = needed;
}

double ArenaJobs::worth(const ArenaJob& job, double throughput) const noexcept {
  if (throughput <= 0) return -1e30;
  switch (options_.objective) {
    case Objective::throughput:
    case Objective::deadlines: return throughput;
    case Objective::completion: {
      const double left = job.job->remaining_samples >= 0 ? job.job->remaining_samples
                                                          : kUnknownLeft_s * job.users_throughput;
      return -left / throughput;
    }
    case Objective::fairness: break;
  }
  return -std::pow(job.fair_throughput / throughput, kWorstFirst);
}

std::optional<planner::Islands> ArenaJobs::find(const GpuPool& pool, const ArenaShare& share,
                                                const planner::Islands& held) const {
  const int whole = pool.per_node(share.type);
  if (whole == 0) return std::nullopt;
  GpuPool tried = pool;
  if (share.gpus <= whole) {
    for (const planner::Island& own : held) {
      GpuPool near = pool;
      auto there = near.take_packed(share.type, share.gpus, {own});
      if (there && there->size() == 1 && there->front().node == own.node) return there;
    }
    if (auto block = tried.take_on_one(share.type, share.gpus)) return block;
  } else if (share.gpus % whole == 0) {
    if (auto nodes = tried.take_whole(share.type, share.gpus / whole, held)) return nodes;
  }
  return tried.take_packed(share.type, share.gpus, held);
}

plan::Layout ArenaJobs::plan_on(const ArenaJob& job, const planner::Islands& gpus,
                                const ArenaShare& share) const {
  // Jobs run with adaptive parallelism, even if the scheduler does not plan for it.
  plan::Layout layout;
  if (options_.plans) layout = job.model->on(gpus, share.degrees);
  return layout.stages.empty() ? job.model->best_on(gpus, {}) : layout;
}

double ArenaJobs::speed_of(const ArenaJob& job, const plan::Layout& layout,
                           const ArenaShare& share) const {
  return options_.plans ? job.model->throughput(layout) : share.throughput;
}

void ArenaJobs::set(std::size_t id, plan::Layout layout, double throughput) {
  ArenaJob& job = jobs_[id];
  undo_.push_back({id, job.gpus, job.layout, job.throughput, job.changed});
  pool_.give(job.gpus);
  job.gpus.clear();
  for (const plan::StageLayout& stage : layout.stages) planner::add_stage(job.gpus, stage);
  pool_.take(job.gpus);
  job.layout = std::move(layout);
  job.throughput = throughput;
  job.changed = true;
}

void ArenaJobs::undo(std::size_t mark) {
  while (undo_.size() > mark) {
    Before& before = undo_.back();
    ArenaJob& job = jobs_[before.job];
    pool_.give(job.gpus);
    pool_.take(before.gpus);
    job.gpus = std::move(before.gpus);
    job.layout = std::move(before.layout);
    job.throughput = before.throughput;
    job.changed = before.changed;
    undo_.pop_back();
  }
}

bool ArenaJobs::place(std::size_t id, const ArenaShare& share, double min_gain) {
  ArenaJob& job = jobs_[id];
  GpuPool tried = pool_;
  tried.give(job.gpus);
  const auto gpus = find(tried, share, job.gpus);
  if (!gpus) return false;
  plan::Layout layout = plan_on(job, *gpus, share);
  if (layout.stages.empty()) return false;
  const double speed = speed_of(job, layout, share);
  if (speed < job.needed_throughput) return false;
  if (min_gain >= 0 && speed < job.throughput * (1 + min_gain)) return false;
  set(id, std::move(layout), speed);
  return true;
}

bool ArenaJobs::shrink(std::size_t id, const ArenaShare& share) {
  ArenaJob& job = jobs_[id];
  planner::Islands order = job.gpus, kept;
  std::stable_sort(
      order.begin(), order.end(),
      [](const planner::Island& a, const planner::Island& b) { return a.count() > b.count(); });
  int left = share.gpus;
  for (planner::Island island : order) {
    while (island.count() > left)
      island.gpus &= ~(plan::GpuMask{1} << (63 - std::countl_zero(island.gpus)));
    left -= island.count();
    if (island.gpus != 0) kept.push_back(island);
  }
  plan::Layout layout = plan_on(job, kept, share);
  if (layout.stages.empty()) return false;
  const double speed = speed_of(job, layout, share);
  if (speed < job.needed_throughput) return false;
  set(id, std::move(layout), speed);
  return true;
}

bool ArenaJobs::start_rigid(std::size_t id, int type) {
  const Contender& job = *jobs_[id].job;
  GpuPool tried = pool_;
  const int each = job.asked / job.nodes;
  const bool whole = job.nodes > 1 && each == pool_.per_node(type);
  const auto gpus = job.nodes == 1 ? tried.take_on_one(type, each)
                    : whole        ? tried.take_whole(type, job.nodes)
                                   : tried.take_packed(type, job.asked);
  plan::Layout layout = gpus ? users_plan_on(job, *gpus) : plan::Layout{};
  if (layout.stages.empty()) return false;
  const double speed = jobs_[id].model ? jobs_[id].model->throughput(layout) : 0;
  set(id, std::move(layout), speed);
  return true;
}

bool ArenaJobs::is_spread(const ArenaJob& job) const noexcept {
  const int whole = pool_.per_node(job.type());
  return whole > 0 && static_cast<int>(job.gpus.size()) > (job.count() + whole - 1) / whole;
}

bool ArenaJobs::gather(std::size_t id, int max, double min_gain) {
  const int type = jobs_[id].type(), whole = pool_.per_node(type);
  std::vector<std::size_t> of_type;
  std::vector<Sized> sized;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const ArenaJob& job = jobs_[i];
    if (!job.launched() || !job.scales() || job.type() != type) continue;
    const int nodes =
        i == id ? (job.count() + whole - 1) / whole : static_cast<int>(job.gpus.size());
    of_type.push_back(i);
    sized.push_back({{{type, job.count(), nodes}}, job.gpus, i != id});
  }
  const std::vector<Placed> placed = place_sizes(sized, pool_);
  std::vector<std::pair<std::size_t, planner::Islands>> moves;
  for (std::size_t k = 0; k < placed.size(); ++k) {
    if (planner::count(placed[k].gpus) != jobs_[of_type[k]].count()) return false;  // no place
    if (placed[k].gpus != jobs_[of_type[k]].gpus) moves.emplace_back(of_type[k], placed[k].gpus);
  }
  if (moves.empty() || static_cast<int>(moves.size()) > max) return false;
  std::vector<std::tuple<std::size_t, plan::Layout, double>> plans;
  double gain = 0;
  for (const auto& [i, gpus] : moves) {
    const ArenaJob& job = jobs_[i];
    plan::Layout layout = job.model->best_on(gpus, {});
    if (layout.stages.empty()) return false;
    // Tables ignore where the GPUs are, so the model compares both plans.
    const double was = job.model->throughput(job.layout), will = job.model->throughput(layout);
    if (i == id && will < was * (1 + min_gain)) return false;
    if (i != id && will < was * (1 - min_gain)) return false;
    gain += worth(job, will) - worth(job, was);
    plans.emplace_back(i, std::move(layout), options_.plans ? will : job.throughput);
  }
  if (gain <= 0) return false;
  for (const auto& [i, layout, speed] : plans) pool_.give(jobs_[i].gpus);
  for (auto& [i, layout, speed] : plans) {
    jobs_[i].gpus.clear();
    set(i, std::move(layout), speed);
  }
  return true;
}

void ArenaJobs::defragment(int max, double min_gain) {
  int left = max;
  for (std::size_t i = 0; i < jobs_.size() && left > 0; ++i) {
    const ArenaJob& job = jobs_[i];
    if (!job.launched() || !job.scales() || job.changed || !is_spread(job)) continue;
    const std::size_t before = undo_.size();
    if (gather(i, left, min_gain)) left -= static_cast<int>(undo_.size() - before);
  }
}

Decisions ArenaJobs::decisions() const {
  Decisions decisions;
  for (const ArenaJob& job : jobs_)
    if (job.changed) decide_plan(decisions, *job.job, job.layout);
  return decisions;
}

}  // namespace swell::policy
