// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/worker_by_worker.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <tuple>

#include "core/policy/lending/sizes.h"

namespace swell::policy {

namespace {

class Lending {
 public:
  Lending(Room& room, double min_growth) : room_(room), min_growth_(min_growth) {}

  std::vector<Grant> run(const std::vector<const ElasticJobView*>& jobs) {
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> waiting;
    for (const ElasticJobView* job : jobs)
      if (job->may_grow && job->per_worker.gpus > 0 && !room_.shrinks(*job))
        waiting.push({room_.total(*job), job->id, job});
    while (!waiting.empty()) {
      Candidate next = waiting.top();
      waiting.pop();
      const int target = next_size(*next.job, next.total);
      if (target == 0 || !grow(*next.job, target - next.total)) continue;
      next.total = target;
      waiting.push(next);
    }
    for (const ElasticJobView* job : jobs) add_grants(*job);
    return std::move(grants_);
  }

 private:
  struct Candidate {
    int total;
    JobId id;
    const ElasticJobView* job;
    bool operator>(const Candidate& other) const {
      return std::tie(total, id) > std::tie(other.total, other.id);
    }
  };

  /// Lends the job `gpus` more, or changes nothing where that is not possible.
  bool grow(const ElasticJobView& job, int gpus) {
    if (gpus % job.per_worker.gpus != 0) return false;
    std::map<NodeIndex, int> step;
    NodeIndex node = last_node_.contains(job.id) ? last_node_[job.id] : -1;
    for (int workers = gpus / job.per_worker.gpus; workers > 0; --workers) {
      if (node < 0 || !room_.free(node).covers(job.per_worker)) node = nearest(job);
      if (node < 0) {
        for (auto [undo, count] : step) {
          room_.undo(undo, job.per_worker * count);
          workers_[job.id][undo] -= count;
        }
        return false;
      }
      room_.lend(node, job.per_worker);
      ++workers_[job.id][node];
      ++step[node];
    }
    last_node_[job.id] = node;
    return true;
  }

  /// Best node for the job's next worker: one already lent from in this decision (one companion
  /// rather than two), then the job's own nodes, then those nearest to them, then the node with the
  /// most idle GPUs.
  NodeIndex nearest(const ElasticJobView& job) {
    const std::map<NodeIndex, int>& mine = workers_[job.id];
    const cluster::Nearness* near = nearness(job);
    NodeIndex best = -1;
    std::tuple<bool, bool, int, int> best_rank;
    for (NodeIndex node : room_.view().partitions[static_cast<std::size_t>(job.partition)]) {
      if (!room_.may_lend(job, node, job.per_worker)) continue;
      auto found = mine.find(node);
      const std::tuple<bool, bool, int, int> rank{
          found != mine.end() && found->second > 0,
          std::find(job.basic_nodes.begin(), job.basic_nodes.end(), node) != job.basic_nodes.end(),
          near != nullptr ? -near->distance(room_.view().positions.of(node)) : 0,
          room_.free(node).gpus};
      if (best < 0 || rank > best_rank) {
        best = node;
        best_rank = rank;
      }
    }
    return best;
  }

  /// Nearness of nodes to the job's own; null where no positions are known.
  const cluster::Nearness* nearness(const ElasticJobView& job) {
    const auto [found, is_new] = nearness_.try_emplace(job.id);
    if (is_new) found->second = room_.view().positions.near(job.basic_nodes);
    return found->second.get();
  }

  void add_grants(const ElasticJobView& job) {
    const auto found = workers_.find(job.id);
    if (found == workers_.end()) return;
    int gained = 0;
    for (auto [node, count] : found->second) gained += count * job.per_worker.gpus;
    if (gained == 0 || gained < min_growth_ * room_.total(job)) return;
    for (auto [node, count] : found->second)
      if (count > 0) grants_.push_back({job.id, node, job.per_worker * count});
  }

  Room& room_;
  double min_growth_;
  std::map<JobId, std::map<NodeIndex, int>> workers_;  ///< lent in this decision
  std::map<JobId, NodeIndex> last_node_;               ///< node of a job's last lent worker
  std::map<JobId, std::unique_ptr<cluster::Nearness>> nearness_;
  std::vector<Grant> grants_;
};

}  // namespace

std::vector<Grant> lend_worker_by_worker(Room& room, const std::vector<const ElasticJobView*>& jobs,
                                         double min_growth) {
  return Lending(room, min_growth).run(jobs);
}

}  // namespace swell::policy
