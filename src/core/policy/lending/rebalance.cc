// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/rebalance.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace swell::policy {

/// Returns the number of GPUs that already leave their jobs, without those kept for pending jobs.
int Rebalance::returning() const {
  std::vector<int> leaving(view_.nodes.size());
  for (const ElasticJobView& job : view_.jobs)
    for (const CompanionView& companion : job.companions)
      if (companion.node >= 0 && (companion.leaving || placement_.is_reclaimed(companion.id)))
        leaving[static_cast<std::size_t>(companion.node)] += companion.held.gpus;
  int sum = 0;
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    const int idle = view_.nodes[i].free.gpus - placement_.kept_gpus(static_cast<NodeIndex>(i));
    sum += std::max(idle + leaving[i], 0) - std::max(idle, 0);
  }
  return sum;
}

std::vector<Rebalance::Taker> Rebalance::takers() const {
  std::vector<Taker> found;
  for (const ElasticJobView& job : view_.jobs) {
    if (!job.may_grow || placement_.shrinks(job) || !belief_.knows(job)) continue;
    if (!job.training->is_measured()) continue;
    const double now = belief_.now(job);
    const int total = placement_.total(job);
    const double worth = worth_.gain(job, now, 2 * now) / std::max(total, 1);
    const std::vector<Owed> owed = owed_beyond(job, total);
    if (owed.empty()) found.push_back({&job, worth, kNever, std::min(total, kStep)});
    for (const Owed& each : owed)
      found.push_back({&job, kOwed * worth, each.since, each.total - total});
  }
  std::stable_sort(found.begin(), found.end(), [](const Taker& a, const Taker& b) {
    return std::tuple(a.owed_since, -a.worth) < std::tuple(b.owed_since, -b.worth);
  });
  // GPUs that return anyway go to the first takers that are owed some, so that fewer are reclaimed.
  int coming = returning();
  std::map<JobId, int> covered;
  for (Taker& taker : found) {
    if (taker.owed_since == kNever) break;
    int& its = covered[taker.job->id];
    const int more = std::clamp(taker.max - its, 0, coming);
    its += more;
    coming -= more;
    taker.max = std::min(taker.max - its, kStep);
  }
  std::erase_if(found, [](const Taker& taker) { return taker.max < 1; });
  return found;
}

void Rebalance::run() {
  const std::vector<Lent> lent = lent_companions();
  std::set<JobId> shrunk, served;
  int left = options_.takers;
  for (const Taker& taker : takers()) {
    if (shrunk.contains(taker.job->id) || served.contains(taker.job->id)) continue;
    const Companions worth_less =
        companions_below(taker.worth / options_.margin, *taker.job, lent, shrunk);
    if (worth_less.empty()) continue;
    if (left-- == 0) break;
    for (const auto& [job, companion] : best_for(taker, worth_less)) {
      placement_.reclaim(*job, *companion, why_owed(taker.owed_since));
      shrunk.insert(job->id);
      served.insert(taker.job->id);
    }
  }
}

/// Returns the companions that jobs may lose to others.
std::vector<Rebalance::Lent> Rebalance::lent_companions() const {
  std::vector<Lent> found;
  for (const ElasticJobView& job : view_.jobs) {
    if (job.changing || placement_.shrinks(job) || !belief_.knows(job)) continue;
    for (const CompanionView& companion : job.companions)
      if (!companion.leaving && companion.node >= 0 && !is_owed(job, companion))
        found.push_back({&job, &companion, loss_(job, companion)});
  }
  return found;
}

/// Returns the companions that the taker may use and whose jobs lose at most `worth` for each GPU.
Rebalance::Companions Rebalance::companions_below(double worth, const ElasticJobView& taker,
                                                  const std::vector<Lent>& lent,
                                                  const std::set<JobId>& shrunk) const {
  const auto& nodes = view_.partitions[static_cast<std::size_t>(taker.partition)];
  Companions found;
  for (const auto& [job, companion, loss] : lent)
    if (loss <= worth && job != &taker && !shrunk.contains(job->id) &&
        placement_.may_use(taker, companion->node, companion) &&
        std::binary_search(nodes.begin(), nodes.end(), companion->node))
      found.emplace_back(job, companion);
  return found;
}

/// Returns the companions of `pool` whose GPUs help the taker most beyond idle ones, less the loss
/// of their jobs; none if that does not make up for the pauses. No companion that is owed is in the
/// pool, so the gain of a job that is owed some outweighs every loss but its own pause.
Rebalance::Companions Rebalance::best_for(const Taker& to, const Companions& pool) const {
  const ElasticJobView& taker = *to.job;
  const double factor = to.owed_since == kNever ? 1 : kOwed;
  PlacementState imagined = placement_;
  imagined.close();
  Expansions expansions(imagined, tables_, &effort_, &belief_, options_.row_filter());
  auto runner = std::find_if(expansions.runners().begin(), expansions.runners().end(),
                             [&](const Runner& one) { return one.job == &taker; });
  if (runner == expansions.runners().end()) return {};
  double with_idle = 0;
  int max = to.max;
  const std::vector<Expansion> idle = expansions.offers(*runner, max);
  if (to.owed_since == kNever) {
    for (const Expansion& offer : idle)
      with_idle = std::max(with_idle, worth_.gain(taker, runner->throughput, offer.throughput));
  } else {
    // Idle GPUs will be lent to it: others lose only the GPUs owed to it beyond these.
    const auto last = std::find_if(idle.rbegin(), idle.rend(), [&](const Expansion& offer) {
      return offer.throughput > runner->throughput;
    });
    if (last != idle.rend()) {
      if ((max -= last->gpus) < 1) return {};
      expansions.lend(*runner, *last);
    }
  }
  for (const auto& [job, companion] : pool) expansions.imagine_idle(*companion);
  Companions best;
  double best_net = 0;
  const Expansion* best_offer = nullptr;
  const std::vector<Expansion> offers = expansions.offers(*runner, max);
  for (const Expansion& offer : offers) {
    const Companions touched = touched_by(offer, pool);
    const double more = worth_.gain(taker, runner->throughput, offer.throughput) - with_idle;
    const double net = factor * more - options_.margin * lost_with(touched);
    if (touched.empty() || net <= best_net) continue;
    best_net = net;
    best = touched;
    best_offer = &offer;
  }
  if (best_offer == nullptr || best_net <= pauses(taker, factor, *best_offer, best)) return {};
  return best;
}

double Rebalance::lost_with(const Companions& given) const {
  double lost = 0;
  for (const auto& [job, companion] : given) lost += loss_(*job, *companion) * companion->held.gpus;
  return lost;
}

/// Returns the cost of the pauses of the taker, times `factor`, and of the jobs that lose
/// companions, in the unit of gain(). Slow: called only for the best offer.
double Rebalance::pauses(const ElasticJobView& taker, double factor, const Expansion& offer,
                         const Companions& given) const {
  const double taker_s = worth_.cost_of(taker, offer.scaling.layout(offer.row)).pause_s;
  double sum = factor * worth_.gain(taker, worth_.after_pause(taker, offer.throughput, taker_s),
                                    offer.throughput);
  std::set<JobId> counted;
  for (const auto& [job, companion] : given) {
    if (!counted.insert(job->id).second) continue;
    const double now = belief_.now(*job);
    sum += worth_.gain(
        *job, worth_.after_pause(*job, now, worth_.cost_of(*job, job->training->basic).pause_s),
        now);
  }
  return sum;
}

Rebalance::Companions Rebalance::touched_by(const Expansion& offer, const Companions& pool) {
  std::map<NodeIndex, plan::GpuMask> taken;
  for (int i = 0; i < offer.gpus; ++i) {
    const cluster::GpuRef gpu = offer.scaling.taken(static_cast<std::size_t>(i));
    taken[gpu.node] |= plan::GpuMask{1} << gpu.index;
  }
  Companions touched;
  for (const auto& each : pool) {
    const auto there = taken.find(each.second->node);
    if (there != taken.end() && (there->second & each.second->gpus) != 0) touched.push_back(each);
  }
  return touched;
}

}  // namespace swell::policy
