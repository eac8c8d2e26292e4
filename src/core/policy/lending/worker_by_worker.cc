// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/worker_by_worker.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <tuple>

#include "core/policy/lending/owed.h"
#include "core/policy/lending/sizes.h"

namespace swell::policy {

namespace {

/// Returns the start of the job if all of its growth to `target` is owed to it; otherwise kNever.
double step_owed_since(const ElasticJobView& job, int target) {
  return owed_since(job, target - 1);  // its last GPU is owed
}

class Lending {
 public:
  enum class Until { wanted, max };

  Lending(PlacementState& placement, double min_growth, Until until)
      : placement_(placement), min_growth_(min_growth), until_(until) {}

  std::vector<Grant> run(const std::vector<const ElasticJobView*>& jobs) {
    for (const ElasticJobView* job : jobs)
      if (job->may_grow && job->per_worker.gpus > 0 && !placement_.shrinks(*job))
        add_step(*job, placement_.total(*job));
    while (!steps_.empty()) {
      const Step next = steps_.top();
      steps_.pop();
      if (grow(*next.job, next.target - next.total)) add_step(*next.job, next.target);
    }
    for (const ElasticJobView* job : jobs) add_grants(*job);
    return std::move(grants_);
  }

 private:
  /// A job's growth from `total` to its next size. Owed growths come first, all of one job before
  /// those of the next; then those of the jobs with the fewest GPUs.
  struct Step {
    double owed_since;
    int total;
    int target;
    const ElasticJobView* job;
    bool operator>(const Step& other) const { return key() > other.key(); }
    std::tuple<double, int, JobId> key() const {
      return {owed_since, owed_since == kNever ? total : 0, job->id};
    }
  };

  void add_step(const ElasticJobView& job, int total) {
    const int target = next_size(job, total);
    if (target == 0) return;
    const double since = step_owed_since(job, target);
    if (until_ == Until::max || since != kNever) steps_.push({since, total, target, &job});
  }

  /// Lends the job `gpus` more, or changes nothing if that is not possible.
  bool grow(const ElasticJobView& job, int gpus) {
    if (gpus % job.per_worker.gpus != 0) return false;
    std::map<NodeIndex, int> step;
    NodeIndex node = last_node_.contains(job.id) ? last_node_[job.id] : -1;
    for (int workers = gpus / job.per_worker.gpus; workers > 0; --workers) {
      if (node < 0 || !placement_.free(node).covers(job.per_worker)) node = nearest(job);
      if (node < 0) {
        for (auto [undo, count] : step) {
          placement_.undo(job, undo, job.per_worker * count);
          workers_[job.id][undo] -= count;
        }
        return false;
      }
      placement_.lend(job, node, job.per_worker);
      ++workers_[job.id][node];
      ++step[node];
    }
    last_node_[job.id] = node;
    return true;
  }

  /// Returns the best node for the job's next worker: one already lent from in this decision (one
  /// companion rather than two), then the job's own nodes, then those nearest to them, then the
  /// node with the most idle GPUs.
  NodeIndex nearest(const ElasticJobView& job) {
    const std::map<NodeIndex, int>& mine = workers_[job.id];
    const cluster::Nearness* near = nearness(job);
    NodeIndex best = -1;
    std::tuple<bool, bool, int, int> best_rank;
    for (NodeIndex node : placement_.view().partitions[static_cast<std::size_t>(job.partition)]) {
      if (!placement_.may_lend(job, node, job.per_worker)) continue;
      auto found = mine.find(node);
      const std::tuple<bool, bool, int, int> rank{
          found != mine.end() && found->second > 0,
          std::find(job.basic_nodes.begin(), job.basic_nodes.end(), node) != job.basic_nodes.end(),
          near != nullptr ? -near->distance(placement_.view().positions.of(node)) : 0,
          placement_.free(node).gpus};
      if (best < 0 || rank > best_rank) {
        best = node;
        best_rank = rank;
      }
    }
    return best;
  }

  /// Returns the nearness of nodes to the job's own; null if no positions are known.
  const cluster::Nearness* nearness(const ElasticJobView& job) {
    const auto [found, is_new] = nearness_.try_emplace(job.id);
    if (is_new) found->second = placement_.view().positions.near(job.basic_nodes);
    return found->second.get();
  }

  void add_grants(const ElasticJobView& job) {
    const auto found = workers_.find(job.id);
    if (found == workers_.end()) return;
    int gained = 0;
    for (auto [node, count] : found->second) gained += count * job.per_worker.gpus;
    if (gained == 0) return;
    const int total = placement_.total(job);
    const bool is_owed = step_owed_since(job, next_size(job, total)) != kNever;
    if (!is_owed && gained < min_growth_ * total) return;
    for (auto [node, count] : found->second)
      if (count > 0) grants_.push_back({job.id, node, job.per_worker * count});
  }

  PlacementState& placement_;
  double min_growth_;
  Until until_;
  std::priority_queue<Step, std::vector<Step>, std::greater<>> steps_;
  std::map<JobId, std::map<NodeIndex, int>> workers_;  ///< lent in this decision
  std::map<JobId, NodeIndex> last_node_;               ///< node of a job's last lent worker
  std::map<JobId, std::unique_ptr<cluster::Nearness>> nearness_;
  std::vector<Grant> grants_;
};

}  // namespace

std::vector<Grant> lend_worker_by_worker(PlacementState& placement,
                                         const std::vector<const ElasticJobView*>& jobs,
                                         double min_growth) {
  return Lending(placement, min_growth, Lending::Until::max).run(jobs);
}

std::vector<Grant> lend_what_is_owed(PlacementState& placement,
                                     const std::vector<const ElasticJobView*>& jobs) {
  return Lending(placement, 0, Lending::Until::wanted).run(jobs);
}

}  // namespace swell::policy
