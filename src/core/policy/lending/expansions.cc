// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/expansions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/perf/performance_model.h"
#include "core/policy/lending/gpu_sizes.h"
#include "core/policy/lending/sizes.h"

namespace swell::policy {

namespace {

std::size_t at(NodeIndex node) { return static_cast<std::size_t>(node); }

plan::GpuMask bit(int index) { return plan::GpuMask{1} << index; }

plan::GpuMask lowest(plan::GpuMask gpus, int wanted) {
  plan::GpuMask taken = 0;
  for (; wanted > 0 && gpus != 0; --wanted, gpus &= gpus - 1) taken |= gpus & (~gpus + 1);
  return taken;
}

/// Returns the number of whole workers that fit into `free`.
int workers_in(const Resources& free, const Resources& worker) {
  int max = free.gpus / worker.gpus;
  if (worker.cpus > 0) max = std::min(max, free.cpus / worker.cpus);
  if (worker.memory_mib > 0)
    max = std::min(max, static_cast<int>(free.memory_mib / worker.memory_mib));
  return std::max(max, 0);
}

}  // namespace

bool uses(const plan::Layout& layout, NodeIndex node, plan::GpuMask gpus) {
  for (const plan::StageLayout& stage : layout.stages)
    for (const plan::GroupLayout& group : stage.groups)
      if (group.node == node && (group.gpus & gpus) != 0) return true;
  return false;
}

double benefit_of_a_doubling(double have, double all, double before, double after) {
  if (all <= have || !(after > before)) return 0;
  return std::exp2(std::log(after / before) / std::log(all / have)) - 1;
}

bool Expansions::can_plan(const ElasticJobView& job, const ClusterView& view) {
  if (!view.machines || !job.training || !job.training->coefficients || !job.training->model)
    return false;
  if (job.training->current.stages.empty() || job.training->basic.stages.empty()) return false;
  return std::all_of(job.companions.begin(), job.companions.end(),
                     [](const CompanionView& companion) {
                       return std::popcount(companion.gpus) == companion.held.gpus;
                     });
}

Expansions::Expansions(PlacementState& placement, const ScaleTables& tables, Effort* effort,
                       const Belief* belief, const planner::RowFilter& filter)
    : placement_(placement), tables_(tables), effort_(effort), belief_(belief), filter_(filter) {
  const ClusterView& view = placement.view();
  for (const NodeView& node : view.nodes) idle_.push_back(node.free_gpus);
  for (const ElasticJobView& job : view.jobs) {
    if (!job.may_grow || job.per_worker.gpus < 1 || placement.shrinks(job) || !can_plan(job, view))
      continue;
    const int total = placement.total(job);
    if (next_size(job, total) == 0) continue;
    const plan::Layout& layout = job.training->current;
    const double throughput = belief != nullptr
                                  ? belief->now(job)
                                  : tables.throughput(*job.training, layout, *view.machines);
    runners_.push_back({&job, layout, total, throughput, {}, {}});
  }
}

/// Returns the GPUs that the job could be lent, node by node.
std::vector<cluster::GpuRef> Expansions::offered(const ElasticJobView& job) const {
  std::vector<cluster::GpuRef> gpus;
  const plan::Allocations allocations = allocations_of(job, placement_.view());
  for (NodeIndex node : placement_.view().partitions[static_cast<std::size_t>(job.partition)]) {
    if (idle_[at(node)] == 0 || !placement_.may_lend(job, node, job.per_worker)) continue;
    int workers = workers_in(placement_.free(node), job.per_worker);
    workers = std::min(workers, std::popcount(idle_[at(node)]) / job.per_worker.gpus);
    for (plan::GpuMask left = lowest(idle_[at(node)], workers * job.per_worker.gpus); left != 0;
         left &= left - 1)
      gpus.push_back(allocations.gpu(node, std::countr_zero(left)));
  }
  return gpus;
}

std::vector<Expansion> Expansions::offers(const Runner& runner, int max, Care care) {
  const ElasticJobView& job = *runner.job;
  max = std::min(max, job.max_gpus - runner.total);
  std::vector<Expansion> offers;
  if (max < 1) return offers;
  const std::vector<cluster::GpuRef> free = offered(job);
  if (free.empty()) return offers;
  const ScaleTables& tables = belief_ != nullptr ? belief_->tables_of(job) : tables_;
  const Scaling scaling =
      tables.of(*job.training, runner.layout, free, static_cast<std::size_t>(max),
                *placement_.view().machines, effort_, care);
  max_evaluated_ = std::max(max_evaluated_, scaling.evaluated());
  ran_out_ = ran_out_ || !scaling.complete();
  std::map<int, int> on_node;
  int partial = 0;  // nodes that hold part of a worker
  std::size_t next = 0;
  for (std::size_t row = 1; row < scaling.rows(); ++row) {
    const int gpus = scaling.gpus(row) - scaling.gpus(0);
    for (; next < static_cast<std::size_t>(gpus); ++next) {
      int& count = on_node[scaling.taken(next).node];
      partial -= count % job.per_worker.gpus != 0 ? 1 : 0;
      partial += ++count % job.per_worker.gpus != 0 ? 1 : 0;
    }
    if (partial > 0 || !may_have(job, runner.total + gpus)) continue;
    offers.push_back({scaling, row, gpus, scaling.throughput(row)});
  }
  if (filter_.has_rules()) leave_out_rows(runner, offers);
  return offers;
}

void Expansions::leave_out_rows(const Runner& runner, std::vector<Expansion>& offers) const {
  if (offers.empty()) return;
  std::vector<planner::RowPredictions> rows;
  rows.reserve(offers.size() + 1);
  rows.push_back({runner.throughput, offers.front().scaling.modelled(0)});
  for (const Expansion& offer : offers)
    rows.push_back({offer.throughput, offer.scaling.modelled(offer.row)});
  const std::vector<planner::RowRule> rules = planner::filtered(rows, filter_);
  std::size_t row = 0;  // 0: the runner itself
  std::erase_if(offers, [&](const Expansion&) { return rules[++row] != planner::RowRule::none; });
}

void Expansions::lend(Runner& runner, const Expansion& offer, double benefit) {
  std::map<NodeIndex, int> taken;
  for (int i = 0; i < offer.gpus; ++i) {
    const cluster::GpuRef gpu = offer.scaling.taken(static_cast<std::size_t>(i));
    idle_[at(gpu.node)] &= ~bit(gpu.index);
    runner.lent[gpu.node] |= bit(gpu.index);
    if (benefit >= 0) runner.benefit[gpu.node] += benefit;
    ++taken[gpu.node];
  }
  for (const auto& [node, gpus] : taken)
    placement_.lend(*runner.job, node,
                    runner.job->per_worker * (gpus / runner.job->per_worker.gpus));
  runner.total += offer.gpus;
  runner.layout = offer.scaling.layout(offer.row);
  runner.throughput = offer.throughput;
  ++changes_;
}

void Expansions::set_aside(NodeIndex node, int gpus) {
  idle_[at(node)] &= ~lowest(idle_[at(node)], gpus);
}

void Expansions::imagine_idle(const CompanionView& companion) {
  idle_[at(companion.node)] |= companion.gpus;
  placement_.undo(companion.node, companion.held);
}

void Expansions::write(Decisions& decisions) const {
  for (const Runner& runner : runners_) {
    if (runner.lent.empty()) continue;
    for (const auto& [node, gpus] : runner.lent) {
      if (!uses(runner.layout, node, gpus)) continue;  // the plan does without this node
      const int count = std::popcount(gpus);
      const auto recorded = runner.benefit.find(node);
      decisions.grants.push_back(
          {runner.job->id, node, runner.job->per_worker * (count / runner.job->per_worker.gpus),
           recorded != runner.benefit.end() ? recorded->second / count : -1});
    }
    decisions.plans.push_back({runner.job->id, runner.layout});
  }
}

std::vector<cluster::GpuRef> lent_gpus(const ElasticJobView& job, const PlacementState& placement) {
  std::vector<cluster::GpuRef> gpus;
  const plan::Allocations allocations = allocations_of(job, placement.view());
  for (const CompanionView& companion : job.companions) {
    if (companion.leaving || companion.node < 0 || placement.is_reclaimed(companion.id)) continue;
    for (plan::GpuMask left = companion.gpus; left != 0; left &= left - 1)
      gpus.push_back(allocations.gpu(companion.node, std::countr_zero(left)));
  }
  return gpus;
}

std::vector<Step> steps(const ElasticJobView& job, const ScaleTables& tables,
                        const ClusterView& view) {
  std::vector<Step> made;
  if (!Expansions::can_plan(job, view)) return made;
  std::vector<cluster::GpuRef> gpus;
  const plan::Allocations allocations = allocations_of(job, view);
  for (const CompanionView& companion : job.companions) {
    if (companion.leaving || companion.node < 0) continue;
    made.push_back({&companion});
    for (plan::GpuMask left = companion.gpus; left != 0; left &= left - 1)
      gpus.push_back(allocations.gpu(companion.node, std::countr_zero(left)));
  }
  if (made.empty()) return made;
  std::sort(made.begin(), made.end(),
            [](const Step& a, const Step& b) { return a.companion->id < b.companion->id; });
  const Scaling scaling =
      tables.of(*job.training, job.training->basic, gpus, gpus.size(), *view.machines);
  // The running plan may be better than the table's row of its size.
  const double now = tables.throughput(*job.training, job.training->current, *view.machines);
  auto with = [&](int have) {
    std::size_t row = 0;
    while (row + 1 < scaling.rows() && scaling.gpus(row + 1) <= have) ++row;
    return scaling.throughput(row);
  };
  const GpuSizes sizes(view);
  int have = job.training->basic.gpu_count();
  double size = sizes.of(job.training->basic);
  const int all = have + static_cast<int>(gpus.size());
  for (Step& step : made) {
    step.have = have;
    step.before = with(have);
    have += step.companion->held.gpus;
    step.after = have == all ? std::max(with(have), now) : with(have);
    const double grown = size + sizes.of(step.companion->node, step.companion->gpus);
    step.benefit = benefit_of_a_doubling(size, grown, step.before, step.after);
    size = grown;
  }
  return made;
}

std::optional<Runner> rescheduled(const ElasticJobView& job, const PlacementState& placement,
                                  const Belief& belief, Effort* effort) {
  if (!job.training->takes_chunks) return std::nullopt;
  const Scaling scaling = belief.tables_of(job).of(*job.training, job.training->current, {}, 0,
                                                   *placement.view().machines, effort, Care::quick);
  auto again = scaling.again();
  if (!again) return std::nullopt;
  const double times = again->throughput / scaling.throughput(0);
  return Runner{&job, std::move(again->layout), placement.total(job), belief.now(job) * times, {},
                {}};
}

void write_shrunk(const PlacementState& placement, const ScaleTables& tables, Decisions& decisions,
                  const Belief* belief) {
  const ClusterView& view = placement.view();
  for (const ElasticJobView& job : view.jobs) {
    const bool now = std::any_of(
        job.companions.begin(), job.companions.end(), [&](const CompanionView& companion) {
          return placement.is_reclaimed(companion.id) && Expansions::can_plan(job, view) &&
                 uses(job.training->current, companion.node, companion.gpus);
        });
    if (!now) continue;
    const std::vector<cluster::GpuRef> left = lent_gpus(job, placement);
    // The quick solver suffices, since this table is not used to choose between jobs.
    constexpr long kNoLimit = std::numeric_limits<long>::max();
    Effort any{0, kNoLimit};
    const ScaleTables& searched = belief != nullptr ? belief->tables_of(job) : tables;
    const Scaling scaling =
        searched.of(*job.training, job.training->basic, left, left.size(), *view.machines, &any);
    auto again = left.empty() ? scaling.again() : std::nullopt;
    decisions.plans.push_back(
        {job.id, again ? std::move(again->layout) : scaling.layout(scaling.rows() - 1)});
  }
}

}  // namespace swell::policy
