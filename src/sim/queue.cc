// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/queue.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <tuple>

namespace swell::sim {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Fifo final : public QueueOrder {
 public:
  bool before(const PendingJob& a, const PendingJob& b) const override {
    return std::tie(a.submit_s, a.id) < std::tie(b.submit_s, b.id);
  }
};

class ShortestFirst final : public QueueOrder {
 public:
  bool before(const PendingJob& a, const PendingJob& b) const override {
    return std::tie(a.limit_s, a.submit_s, a.id) < std::tie(b.limit_s, b.submit_s, b.id);
  }
};

/// Number of GPUs of one node that no basic allocation holds, over time.
class NodeTimeline {
 public:
  void change(double at_s, int gpus) {
    auto place = steps_.end();
    while (place != steps_.begin() && std::prev(place)->first > at_s) --place;
    steps_.insert(place, {at_s, gpus});
  }
  /// The first time from `from_s` on at which `gpus` stay free for `length_s`.
  double first_fit(double from_s, double length_s, int gpus) const {
    int free = 0;
    double since = kNever;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      free += steps_[i].second;
      if (i + 1 < steps_.size() &&
          (steps_[i + 1].first <= from_s || steps_[i + 1].first == steps_[i].first))
        continue;
      const double begin = std::max(from_s, steps_[i].first);
      if (free < gpus) since = kNever;
      else if (since == kNever) since = begin;
      const double end = i + 1 < steps_.size() ? steps_[i + 1].first : kNever;
      if (since != kNever && end - since >= length_s) return since;
    }
    return kNever;
  }

 private:
  std::vector<std::pair<double, int>> steps_;  ///< by time; the first is the number free now
};

/// State of one plan() while it is made.
class Planner {
 public:
  Planner(const Ledger& ledger, const std::vector<Release>& releases,
          const cluster::Cluster& cluster, double now)
      : cluster_(cluster), now_(now), timelines_(static_cast<std::size_t>(ledger.nodes())) {
    for (int node = 0; node < ledger.nodes(); ++node) {
      idle_.push_back(std::popcount(ledger.free(node)));
      available_.push_back(ledger.is_up(node) ? idle_.back() + std::popcount(ledger.lent(node))
                                              : 0);
      timelines_[at(node)].change(now, available_.back());
    }
    for (const Release& release : releases)
      if (ledger.is_up(release.node))
        timelines_[at(release.node)].change(std::max(release.at_s, now), release.gpus);
  }

  /// Nodes on which the job can start now without delaying planned jobs; fewer than it needs mean
  /// that it cannot start.
  std::vector<int> nodes_now(const PendingJob& job) const {
    std::vector<int> nodes;
    for (std::size_t node = 0; node < timelines_.size(); ++node)
      if (available_[node] >= job.demand.per_node &&
          has_type(cluster_, static_cast<int>(node), job.gpu_type) &&
          timelines_[node].first_fit(now_, job.limit_s, job.demand.per_node) <= now_)
        nodes.push_back(static_cast<int>(node));
    if (static_cast<int>(nodes.size()) < job.demand.nodes) return {};
    order(nodes, job);
    nodes.resize(static_cast<std::size_t>(job.demand.nodes));
    return nodes;
  }

  bool is_idle(const std::vector<int>& nodes, int per_node) const {
    return std::all_of(nodes.begin(), nodes.end(),
                       [&](int node) { return idle_[at(node)] >= per_node; });
  }

  void start(const std::vector<int>& nodes, const PendingJob& job) {
    for (int node : nodes) {
      occupy(node, now_, job);
      idle_[at(node)] -= job.demand.per_node;
      available_[at(node)] -= job.demand.per_node;
    }
  }

  /// Plans the job for the first moment at which it fits.
  void reserve(const PendingJob& job) {
    double at_s = now_;
    const auto wanted = static_cast<std::size_t>(job.demand.nodes);
    for (;;) {
      std::vector<std::pair<double, int>> fits;
      for (std::size_t node = 0; node < timelines_.size(); ++node) {
        if (!has_type(cluster_, static_cast<int>(node), job.gpu_type)) continue;
        const double first = timelines_[node].first_fit(at_s, job.limit_s, job.demand.per_node);
        if (first < kNever) fits.push_back({first, static_cast<int>(node)});
      }
      if (fits.size() < wanted) return;  // a node is down
      std::sort(fits.begin(), fits.end());
      const double latest = fits[wanted - 1].first;
      if (latest > at_s) {  // the others may not be free then: look again from there
        at_s = latest;
        continue;
      }
      for (std::size_t i = 0; i < wanted; ++i) occupy(fits[i].second, at_s, job);
      return;
    }
  }

 private:
  static std::size_t at(int node) { return static_cast<std::size_t>(node); }

  void occupy(int node, double from_s, const PendingJob& job) {
    timelines_[at(node)].change(from_s, -job.demand.per_node);
    timelines_[at(node)].change(from_s + job.limit_s, job.demand.per_node);
  }

  void order(std::vector<int>& nodes, const PendingJob& job) const {
    std::map<int, int> in_rack;
    for (int node : nodes) ++in_rack[cluster_.node(node).rack];
    auto rank = [&](int node) {
      const int missing = std::max(0, job.demand.per_node - idle_[at(node)]);
      const int rack = cluster_.node(node).rack, candidates = in_rack[rack];
      // The tightest rack that holds all of the job comes first; where none does, the emptiest.
      const bool whole = candidates >= job.demand.nodes;
      return std::make_tuple(missing,
                             job.demand.nodes > 1
                                 ? std::make_pair(!whole, whole ? candidates : -candidates)
                                 : std::make_pair(false, 0),
                             available_[at(node)], rack, node);
    };
    std::vector<std::pair<decltype(rank(0)), int>> ranked;
    for (int node : nodes) ranked.push_back({rank(node), node});
    std::sort(ranked.begin(), ranked.end());
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = ranked[i].second;
  }

  const cluster::Cluster& cluster_;
  double now_;
  std::vector<NodeTimeline> timelines_;
  std::vector<int> idle_, available_;
};

}  // namespace

Result<std::unique_ptr<QueueOrder>> make_queue_order(std::string_view name) {
  if (name == "fifo") return std::unique_ptr<QueueOrder>(std::make_unique<Fifo>());
  if (name == "sjf") return std::unique_ptr<QueueOrder>(std::make_unique<ShortestFirst>());
  return Error(fmt::format("there is no queue order \"{}\"; there are: fifo, sjf", name));
}

std::vector<Start> BaseScheduler::plan(const std::vector<PendingJob>& queue, const Ledger& ledger,
                                       const std::vector<Release>& releases,
                                       const cluster::Cluster& cluster, double now_s) const {
  std::vector<Start> starts;
  if (queue.empty()) return starts;
  Planner planner(ledger, releases, cluster, now_s);
  // Shortest time limit of each demand that does not fit now.
  std::map<std::tuple<int, int, int>, double> failed;
  int planned = 0;
  for (const PendingJob& job : queue) {
    const std::tuple demand(job.demand.nodes, job.demand.per_node, job.gpu_type);
    const auto known = failed.find(demand);
    const bool hopeless = known != failed.end() && job.limit_s >= known->second;
    const std::vector<int> nodes = hopeless ? std::vector<int>{} : planner.nodes_now(job);
    if (!nodes.empty()) {
      starts.push_back(
          {job.id, nodes, job.demand.per_node, planner.is_idle(nodes, job.demand.per_node)});
      planner.start(nodes, job);
      continue;
    }
    if (!backfill) break;
    if (!hopeless) failed[demand] = job.limit_s;
    if (planned++ < max_planned) planner.reserve(job);
  }
  return starts;
}

}  // namespace swell::sim
