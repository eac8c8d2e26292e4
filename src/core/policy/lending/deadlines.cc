// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/deadlines.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/policy/lending/owed.h"
#include "core/policy/lending/rebalance.h"

namespace swell::policy {

namespace {

/// Part of the time left that is kept in reserve for pauses and for wrong predictions.
constexpr double kReserve = 0.1;

/// Exponents by which speed is assumed to grow with the GPUs: for a job that never had more GPUs,
/// and the minimum for every job.
constexpr double kPower = 0.9, kLeastPower = 0.25;

double power_of(const ElasticJobView& job, const Belief& belief, double total) {
  const double basic = job.training->basic.gpu_count();
  if (total <= basic) return kPower;
  const double seen =
      std::log(std::max(belief.now(job) / belief.basic(job), 1.0)) / std::log(total / basic);
  return std::clamp(seen, kLeastPower, 1.0);
}

/// If no number of GPUs keeps a deadline, a job keeps those that bring it to this part of the speed
/// that it needs. Otherwise they would be reclaimed and claimed again in turn.
constexpr double kNearly = 0.75;

/// Limit of plans evaluated for claims in one decision: a count, so that equal views give equal
/// decisions.
constexpr long kMaxEvaluated = 100'000;

/// GPUs of one node that are idle or about to be, or those of one companion.
struct Source {
  NodeIndex node = -1;
  plan::GpuMask gpus = 0;
  int count = 0;
  const ElasticJobView* job = nullptr;  ///< owner of the companion; null: the GPUs are idle
  const CompanionView* companion = nullptr;
  const ElasticJobView* aside = nullptr;  ///< the job for which they are set aside; null: none
};

/// Sources from which claims can be served. Refers to the view.
class Reach {
 public:
  /// Sets GPUs aside for pending jobs, then for jobs that consented to fewer than they wanted.
  Reach(const ClusterView& view, int queue_depth) : view_(view), placement_(view) {
    const PlacementState::Loss any = [](const ElasticJobView&, const CompanionView&) {
      return 0.0;
    };
    placement_.serve_queue(queue_depth, any, PlacementState::Nodes::by_idle);
    const std::vector<Resources> soon = placement_.with_leaving();
    for (std::size_t node = 0; node < soon.size(); ++node)
      sources_.push_back(
          {static_cast<NodeIndex>(node), view.nodes[node].free_gpus, std::max(soon[node].gpus, 0)});
    for (const ElasticJobView& job : view.jobs)
      for (const CompanionView& companion : job.companions) {
        if (companion.node < 0) continue;
        if (companion.leaving || placement_.is_reclaimed(companion.id))
          sources_[static_cast<std::size_t>(companion.node)].gpus |= companion.gpus;
        else
          sources_.push_back(
              {companion.node, companion.gpus, companion.held.gpus, &job, &companion});
      }
    for (const ElasticJobView& job : view.jobs)
      if (job.may_grow) take(job, job.wanted_gpus - job.basic_gpus - job.lent_gpus());
  }

  /// Returns the number of GPUs that the job could get: neither its own nor owed to others.
  int gpus(const ElasticJobView& job) const {
    int sum = 0;
    for (const Source& source : sources_)
      if (serves(source, job)) sum += source.count;
    return sum;
  }

  /// Returns the same GPUs, as far as their indexes are known.
  std::vector<cluster::GpuRef> refs(const ElasticJobView& job) const {
    std::vector<cluster::GpuRef> found;
    const plan::Allocations allocations = allocations_of(job, view_);
    for (const Source& source : sources_) {
      if (!serves(source, job)) continue;
      plan::GpuMask left = source.gpus;
      for (int i = 0; i < source.count && left != 0; ++i, left &= left - 1)
        found.push_back(allocations.gpu(source.node, std::countr_zero(left)));
    }
    return found;
  }

  /// Sets GPUs aside for the job until it has `gpus` of them, idle ones first.
  void take(const ElasticJobView& job, int gpus) {
    for (const Source& source : sources_)
      if (source.aside == &job) gpus -= source.count;
    std::vector<Source> taken;
    for (Source& source : sources_) {
      if (gpus <= 0) break;
      if (source.aside != nullptr || !serves(source, job)) continue;
      Source& part = taken.emplace_back(source);
      part.aside = &job;
      part.gpus = 0;
      part.count = std::min(gpus, source.count);
      for (int i = 0; i < part.count; ++i) {
        part.gpus |= source.gpus & (~source.gpus + 1);
        source.gpus &= source.gpus - 1;
      }
      source.count -= part.count;
      gpus -= part.count;
    }
    sources_.insert(sources_.end(), taken.begin(), taken.end());
  }

 private:
  bool serves(const Source& source, const ElasticJobView& job) const {
    if (source.aside != nullptr) return source.aside == &job;
    const auto& nodes = view_.partitions[static_cast<std::size_t>(job.partition)];
    return source.count > 0 && source.job != &job &&
           std::binary_search(nodes.begin(), nodes.end(), source.node) &&
           placement_.may_use(job, source.node, source.companion) &&
           (source.job == nullptr || !is_owed(*source.job, *source.companion));
  }

  const ClusterView& view_;
  PlacementState placement_;
  std::vector<Source> sources_;  ///< first, one for each node with its idle GPUs
};

/// Returns the samples a second expected of the job with `gpus` more GPUs of `free`; 0: no plan for
/// them is faster, or none was found within `effort`. For more than kStep GPUs, extrapolates by the
/// power law that holds up to there.
double expected(const ElasticJobView& job, const std::vector<cluster::GpuRef>& free, int gpus,
                const ClusterView& view, const Belief& belief, Effort& effort) {
  const Scaling scaling = belief.tables_of(job).of(*job.training, job.training->current, free,
                                                   static_cast<std::size_t>(std::min(gpus, kStep)),
                                                   *view.machines, &effort);
  std::size_t best = 0;
  for (std::size_t row = 1; row < scaling.rows(); ++row)
    if (scaling.throughput(row) > scaling.throughput(best)) best = row;
  if (best == 0) return 0;
  double speed = scaling.throughput(best);
  if (gpus > kStep) {
    const double have = scaling.gpus(0), all = scaling.gpus(best);
    const double power =
        std::log(scaling.throughput(best) / scaling.throughput(0)) / std::log(all / have);
    speed *= std::pow((have + gpus) / all, power);
  }
  return speed;
}

/// Returns the smallest allowed number of GPUs of at least `gpus`; 0: none is within `reach`.
int size_from(const ElasticJobView& job, double gpus, int reach) {
  const int max = std::min(job.max_gpus, reach);
  if (!(gpus <= max)) return 0;
  const int least = std::max(static_cast<int>(std::ceil(gpus)), job.basic_gpus);
  if (!job.sizes.empty()) {
    const auto size = std::lower_bound(job.sizes.begin(), job.sizes.end(), least);
    return size != job.sizes.end() && *size <= max ? *size : 0;
  }
  const int each = std::max(job.per_worker.gpus, 1);
  const int whole = job.basic_gpus + (least - job.basic_gpus + each - 1) / each * each;
  return whole <= max ? whole : 0;
}

}  // namespace

std::vector<DeadlineState> claim_for_deadlines(ClusterView& view, const Belief& belief,
                                               int queue_depth) {
  std::vector<DeadlineState> states;
  std::vector<std::pair<ElasticJobView*, std::size_t>> known;  // with the index of its state
  for (ElasticJobView& job : view.jobs) {
    if (job.deadline_s == kNoDeadline) continue;
    DeadlineState& state = states.emplace_back();
    state.job = job.id;
    if (!belief.knows(job) || !job.training->is_measured() || job.remaining_samples < 0) continue;
    job.left_s = job.remaining_samples / belief.now(job);
    state.slack_s = job.deadline_s - view.now_s - job.left_s;
    if (job.deadline_s > view.now_s) known.emplace_back(&job, states.size() - 1);
  }
  if (known.empty()) return states;
  std::stable_sort(known.begin(), known.end(),
                   [](const auto& a, const auto& b) { return a.first->left_s < b.first->left_s; });
  Reach reach(view, queue_depth);
  Effort effort{0, kMaxEvaluated};
  for (const auto& [job, index] : known) {
    const double now = belief.now(*job);
    const double wanted =
        job->remaining_samples / ((1 - kReserve) * (job->deadline_s - view.now_s));
    const int total = job->basic_gpus + job->lent_gpus();
    const double gpus = total * std::pow(wanted / now, 1 / power_of(*job, belief, total));
    int needed = size_from(*job, gpus, total + reach.gpus(*job));
    if (needed > total &&
        expected(*job, reach.refs(*job), needed - total, view, belief, effort) < kNearly * wanted)
      needed = 0;
    reach.take(*job, needed - total);
    states[index].needed_gpus = needed;
    job->needed_gpus = needed == 0 && now >= kNearly * wanted ? total : needed;
  }
  return states;
}

}  // namespace swell::policy
