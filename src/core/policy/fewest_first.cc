// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/fewest_first.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "core/policy/packing.h"

namespace swell::policy {

namespace {

std::size_t at(NodeIndex node) { return static_cast<std::size_t>(node); }

/// A companion with its parent, while the decision is worked out.
struct Lent {
  const ElasticJobView* job;
  const CompanionView* companion;
  bool taken_back;
};

/// One decision being worked out.
class Decision {
 public:
  Decision(const ClusterView& view, const FewestFirst::Options& options) : view_(view), options_(options) {
    free_.reserve(view.nodes.size());
    for (const NodeView& node : view.nodes) free_.push_back(node.free);
    soon_ = free_;
    lent_on_.resize(view.nodes.size());
    for (const ElasticJobView& job : view.jobs) {
      total_[job.id] = job.basic_gpus + job.lent_gpus();
      for (const CompanionView& companion : job.companions) {
        if (companion.node < 0) continue;
        lent_.push_back({&job, &companion, companion.leaving});
        lent_on_[at(companion.node)].push_back(lent_.size() - 1);
        soon_[at(companion.node)] += companion.held;
      }
    }
  }

  Decisions run() {
    const int depth = std::min(options_.queue_depth, static_cast<int>(view_.queue.size()));
    for (int i = 0; i < depth; ++i) make_room(view_.queue[static_cast<std::size_t>(i)]);
    lend();
    return std::move(decisions_);
  }

 private:
  // ---- basic demand first

  /// Keeps what a pending job could start on, taking companions back where that is needed.
  void make_room(const PendingDemand& demand) {
    if (known_not_to_fit(demand)) return;
    if (auto shares = place(demand, view_, free_)) return keep(*shares);
    // Not on idle GPUs: with lent ones. Nodes that need the least taken back come first.
    std::vector<NodeIndex> order = view_.partitions[at(demand.partition)];
    std::stable_sort(order.begin(), order.end(), [&](NodeIndex a, NodeIndex b) {
      return free_[at(a)].gpus > free_[at(b)].gpus;
    });
    auto shares = place(demand, view_, soon_, order);
    if (!shares) {
      does_not_fit_.push_back(&demand);
      return;
    }
    for (const Share& share : *shares) take_back(share, demand.id);
    keep(*shares);
  }

  /// A demand that is at least as large as one that did not fit does not fit either: what is left
  /// only shrinks from one pending job to the next.
  bool known_not_to_fit(const PendingDemand& demand) const {
    return std::any_of(does_not_fit_.begin(), does_not_fit_.end(), [&](const PendingDemand* smaller) {
      return demand.partition == smaller->partition && demand.gpu_type == smaller->gpu_type &&
             demand.min_nodes >= smaller->min_nodes && demand.max_nodes <= smaller->max_nodes &&
             demand.per_node.covers(smaller->per_node) && demand.in_all.covers(smaller->in_all) &&
             demand.whole_nodes == smaller->whole_nodes && smaller->required_nodes.empty() &&
             smaller->excluded_nodes.empty();
    });
  }

  /// Takes a pending job's shares off both counts, so that neither a grant nor another pending job
  /// is given them. `free_` may go below what is really idle: then nothing is lent there.
  void keep(const std::vector<Share>& shares) {
    for (const Share& share : shares) {
      free_[at(share.node)] -= share.taken;
      soon_[at(share.node)] -= share.taken;
    }
  }

  /// Takes companions on a node back until the share is covered by what is idle there, from the job
  /// that has the most GPUs first. Companions that leave already count as taken.
  void take_back(const Share& share, JobId needed_by) {
    Resources idle = free_[at(share.node)];
    std::vector<std::size_t> here = lent_on_[at(share.node)];
    for (std::size_t index : here)
      if (lent_[index].taken_back) idle += counted_once(index);
    std::stable_sort(here.begin(), here.end(), [&](std::size_t a, std::size_t b) {
      return total_[lent_[a].job->id] > total_[lent_[b].job->id];
    });
    for (std::size_t index : here) {
      if (idle.covers(share.taken)) break;
      Lent& lent = lent_[index];
      if (lent.taken_back) continue;
      lent.taken_back = true;
      total_[lent.job->id] -= lent.companion->held.gpus;
      shrunk_.insert(lent.job->id);
      idle += counted_once(index);
      decisions_.reclaims.push_back({lent.job->id, lent.companion->id, needed_by});
    }
  }

  /// What a leaving companion gives back; added to `free_` the first time it is counted on.
  Resources counted_once(std::size_t index) {
    if (!counted_.insert(index).second) return Resources{};
    const CompanionView& companion = *lent_[index].companion;
    free_[at(companion.node)] += companion.held;
    promised_.insert(companion.node);
    return companion.held;
  }

  // ---- then lending

  struct Candidate {
    int total;
    JobId id;
    const ElasticJobView* job;
    bool operator>(const Candidate& other) const {
      return std::tie(total, id) > std::tie(other.total, other.id);
    }
  };

  void lend() {
    // GPUs of companions that are still leaving are not idle yet: lend only what is.
    for (NodeIndex node : promised_)
      free_[at(node)] = {std::min(free_[at(node)].gpus, 0), free_[at(node)].cpus, free_[at(node)].memory_mib};

    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> waiting;
    for (const ElasticJobView& job : view_.jobs)
      if (job.may_grow && job.per_worker.gpus > 0 && !shrunk_.contains(job.id) && !is_leaving(job))
        waiting.push({total_[job.id], job.id, &job});
    while (!waiting.empty()) {
      Candidate next = waiting.top();
      waiting.pop();
      const int target = next_size(*next.job, next.total);
      if (target == 0 || !grow(*next.job, target - next.total)) continue;
      next.total = target;
      waiting.push(next);
    }
    for (const ElasticJobView& job : view_.jobs) add_grants(job);
  }

  static bool is_leaving(const ElasticJobView& job) {
    return std::any_of(job.companions.begin(), job.companions.end(),
                       [](const CompanionView& companion) { return companion.leaving; });
  }

  /// The next total that the job may have, or 0 where it has its most.
  static int next_size(const ElasticJobView& job, int total) {
    if (job.sizes.empty()) {
      const int next = total + job.per_worker.gpus;
      return next <= job.max_gpus ? next : 0;
    }
    const auto next = std::upper_bound(job.sizes.begin(), job.sizes.end(), total);
    return next != job.sizes.end() && *next <= job.max_gpus ? *next : 0;
  }

  /// Adds `gpus` to what the job is lent, or leaves everything as it was.
  bool grow(const ElasticJobView& job, int gpus) {
    if (gpus % job.per_worker.gpus != 0) return false;
    std::map<NodeIndex, int> step;
    NodeIndex node = last_node_.contains(job.id) ? last_node_[job.id] : -1;
    for (int workers = gpus / job.per_worker.gpus; workers > 0; --workers) {
      if (node < 0 || !free_[at(node)].covers(job.per_worker)) node = nearest(job);
      if (node < 0) {
        for (auto [undo, count] : step) {
          free_[at(undo)] += job.per_worker * count;
          workers_[job.id][undo] -= count;
        }
        return false;
      }
      free_[at(node)] -= job.per_worker;
      ++workers_[job.id][node];
      ++step[node];
    }
    last_node_[job.id] = node;
    return true;
  }

  /// Where the job's next worker is best: a node already lent from in this decision (one companion
  /// rather than two), then its own nodes, then those nearest to its own, then the node with the most idle GPUs.
  NodeIndex nearest(const ElasticJobView& job) {
    const std::map<NodeIndex, int>& mine = workers_[job.id];
    const cluster::Nearness* near = nearness(job);
    NodeIndex best = -1;
    std::tuple<bool, bool, int, int> best_rank;
    for (NodeIndex node : view_.partitions[at(job.partition)]) {
      if (view_.nodes[at(node)].settling || !free_[at(node)].covers(job.per_worker) || !may_use(job, node)) continue;
      auto found = mine.find(node);
      const std::tuple<bool, bool, int, int> rank{
          found != mine.end() && found->second > 0,
          std::find(job.basic_nodes.begin(), job.basic_nodes.end(), node) != job.basic_nodes.end(),
          near != nullptr ? -near->distance(view_.places.of(node)) : 0,
          free_[at(node)].gpus};
      if (best < 0 || rank > best_rank) {
        best = node;
        best_rank = rank;
      }
    }
    return best;
  }

  /// How near nodes are to the job's own; null where nobody knows.
  const cluster::Nearness* nearness(const ElasticJobView& job) {
    const auto [found, is_new] = nearness_.try_emplace(job.id);
    if (is_new) found->second = view_.places.near(job.basic_nodes);
    return found->second.get();
  }

  bool may_use(const ElasticJobView& job, NodeIndex node) const {
    const std::string& type = view_.nodes[at(node)].gpu_type;
    if (!job.gpu_types.empty() &&
        std::find(job.gpu_types.begin(), job.gpu_types.end(), type) == job.gpu_types.end())
      return false;
    return std::find(job.excluded_nodes.begin(), job.excluded_nodes.end(), node) == job.excluded_nodes.end();
  }

  void add_grants(const ElasticJobView& job) {
    const auto found = workers_.find(job.id);
    if (found == workers_.end()) return;
    int gained = 0;
    for (auto [node, count] : found->second) gained += count * job.per_worker.gpus;
    if (gained == 0 || gained < options_.least_growth * total_[job.id]) return;
    for (auto [node, count] : found->second)
      if (count > 0) decisions_.grants.push_back({job.id, node, job.per_worker * count});
  }

  const ClusterView& view_;
  const FewestFirst::Options& options_;
  std::vector<Resources> free_;   ///< idle and not kept for a pending job
  std::vector<Resources> soon_;   ///< the same with every companion given back
  std::vector<Lent> lent_;
  std::vector<std::vector<std::size_t>> lent_on_;  ///< per node, indices into lent_
  std::map<JobId, int> total_;                     ///< GPUs of each elastic job after the reclaims
  std::set<JobId> shrunk_;
  std::set<std::size_t> counted_;
  std::set<NodeIndex> promised_;
  std::vector<const PendingDemand*> does_not_fit_;
  std::map<JobId, std::map<NodeIndex, int>> workers_;  ///< lent in this decision
  std::map<JobId, NodeIndex> last_node_;               ///< where a job was lent its last worker
  std::map<JobId, std::unique_ptr<cluster::Nearness>> nearness_;
  Decisions decisions_;
};

}  // namespace

Decisions FewestFirst::decide(const ClusterView& view) const { return Decision(view, options_).run(); }

}  // namespace swell::policy
