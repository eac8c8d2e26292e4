// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/elasticflow.h"

#include <algorithm>

#include "core/policy/rivals/allocation_set.h"
#include "core/policy/rivals/reservations.h"

namespace swell::policy {

namespace {

struct Share {
  const Contender* job = nullptr;
  std::vector<Configuration> ladder;  ///< its configurations on one GPU type, rising
  int step = -1;                      ///< index into the ladder of what it gets; -1: nothing

  const Configuration* now() const {
    return step < 0 ? nullptr : &ladder[static_cast<std::size_t>(step)];
  }
  int gpus() const { return step < 0 ? 0 : now()->gpus; }
};

/// Returns the configurations on the GPU type that the job runs on; for a pending job, on the type
/// that gives most for each GPU and has room for the first step.
std::vector<Configuration> ladder_for(const Contender& job, const std::vector<Configuration>& all,
                                      const std::vector<int>& left) {
  std::vector<Configuration> best;
  for (const Configuration& first : all) {
    if (!best.empty() && first.type == best.front().type) continue;
    if (!job.held.empty() && first.type != job.held.front().type) continue;
    if (left[static_cast<std::size_t>(first.type)] < first.gpus) continue;
    if (!best.empty() &&
        first.throughput / first.gpus <= best.front().throughput / best.front().gpus)
      continue;
    best.clear();
    for (const Configuration& one : all)
      if (one.type == first.type) best.push_back(one);
  }
  return best;
}

/// Returns its configurations by type: only those of the type on which it runs; for a pending job,
/// types that give most for each GPU first.
std::vector<std::vector<Configuration>> ladders_for(const Contender& job,
                                                    const std::vector<Configuration>& all) {
  std::vector<std::vector<Configuration>> ladders;
  for (const Configuration& one : all) {
    if (!job.held.empty() && one.type != job.held.front().type) continue;
    if (ladders.empty() || ladders.back().front().type != one.type) ladders.emplace_back();
    ladders.back().push_back(one);
  }
  std::stable_sort(ladders.begin(), ladders.end(), [](const auto& a, const auto& b) {
    return a.front().throughput / a.front().gpus > b.front().throughput / b.front().gpus;
  });
  return ladders;
}

// Maximum number of jobs that are refused for the sake of others. Then only the job without a share
// is refused: bounds the time of a decision with many deadlines that are too near.
constexpr int kMaxRefusedForOthers = 50;

/// Jobs with a deadline, and what is promised to them.
class Admission {
 public:
  /// `due_s`: the time kept free before each deadline.
  Admission(double now_s, std::vector<int> free, double due_s)
      : now_s_(now_s), free_(std::move(free)), due_s_(due_s) {}

  /// Adds a job. The first ones added are the last to be refused: those that run were admitted.
  void add(Share& share, const std::vector<Configuration>& all) {
    const Contender& job = *share.job;
    if (job.deadline_s == kNoDeadline || job.remaining_samples < 0 || job.rigid) return;
    auto ladders = ladders_for(job, all);
    if (!ladders.empty()) asked_.push_back({&share, std::move(ladders), -1, 0});
  }

  /// Gives the admitted jobs their ladders and steps: the least share that keeps each deadline.
  void admit() {
    std::vector<Asked*> by_deadline;
    for (Asked& one : asked_) by_deadline.push_back(&one);
    std::stable_sort(by_deadline.begin(), by_deadline.end(), [](const Asked* a, const Asked* b) {
      return a->share->job->deadline_s < b->share->job->deadline_s;
    });
    for (int refused = 0; !promise(by_deadline, refused < kMaxRefusedForOthers); ++refused) {}
    for (Asked* one : by_deadline) {
      one->share->ladder = std::move(one->ladders[one->type]);
      one->share->step = one->step;
    }
  }

 private:
  struct Asked {
    Share* share;
    std::vector<std::vector<Configuration>> ladders;
    int step;          ///< promised now
    std::size_t type;  ///< index of the ladder
  };

  bool promise(std::vector<Asked*>& jobs, bool for_others) const {
    Reservations promised(now_s_, free_);
    for (std::size_t i = 0; i < jobs.size();) {
      if (promise(promised, *jobs[i])) {
        ++i;
        continue;
      }
      // Refuse the job added last, of this one and those with earlier deadlines.
      auto newest = jobs.begin() + static_cast<std::ptrdiff_t>(i);
      if (for_others)
        newest = std::max_element(jobs.begin(), newest + 1);  // all are elements of asked_
      const bool itself = newest == jobs.begin() + static_cast<std::ptrdiff_t>(i);
      jobs.erase(newest);
      if (!itself) return false;
    }
    return true;
  }

  bool promise(Reservations& promised, Asked& one) const {
    const Contender& job = *one.share->job;
    for (one.type = 0; one.type < one.ladders.size(); ++one.type) {
      const auto step =
          promised.promise(one.ladders[one.type], job.remaining_samples, job.deadline_s - due_s_);
      if (!step) continue;
      one.step = *step;
      return true;
    }
    return false;
  }

  double now_s_;
  std::vector<int> free_;
  double due_s_;
  std::vector<Asked> asked_;
};

/// Marginal return: throughput gained by each further GPU, in units of what each GPU of the
/// smallest share yields; below 1 by the GPU time that scaling costs. (A return for each job
/// instead would give all GPUs to the smallest jobs.)
double marginal_return(const Share& share) {
  const Configuration& now = *share.now();
  const Configuration& next = share.ladder[static_cast<std::size_t>(share.step) + 1];
  return (next.throughput - now.throughput) / share.ladder.front().throughput *
         share.ladder.front().gpus / (next.gpus - now.gpus);
}

void grow(std::vector<Share>& shares, std::vector<int>& left) {
  for (;;) {
    Share* best = nullptr;
    double max = 0;
    for (Share& share : shares) {
      if (share.step < 0 || share.step + 1 >= static_cast<int>(share.ladder.size())) continue;
      const Configuration& next = share.ladder[static_cast<std::size_t>(share.step) + 1];
      if (left[static_cast<std::size_t>(next.type)] < next.gpus - share.gpus()) continue;
      const double gain = marginal_return(share);
      if (gain > max) max = gain, best = &share;
    }
    if (!best) return;
    const int before = best->gpus();
    ++best->step;
    left[static_cast<std::size_t>(best->now()->type)] -= best->gpus() - before;
  }
}

}  // namespace

Decisions ElasticFlow::decide(const ClusterView& view) const {
  Decisions decisions;
  if (!view.machines) return decisions;
  const std::vector<Contender> jobs = contenders(view);
  GpuPool pool(view);
  std::vector<int> left;
  for (int type = 0; type < static_cast<int>(view.machines->types().size()); ++type)
    left.push_back(pool.free(type));
  for (const Contender& job : jobs)
    if (job.movable)
      for (const planner::Island& island : job.held)
        left[static_cast<std::size_t>(island.type)] += island.count();

  std::vector<Share> shares;
  std::vector<std::vector<Configuration>> known;
  for (const Contender& job : jobs) {
    if (!job.movable) continue;
    shares.push_back({&job, {}, -1});
    known.push_back(configurations(job, view, pool, curves_));
  }
  Admission admission(view.now_s, left, options_.round_s);
  for (std::size_t i = 0; i < shares.size(); ++i) admission.add(shares[i], known[i]);
  admission.admit();
  for (const Share& share : shares)
    if (const Configuration* now = share.now())
      left[static_cast<std::size_t>(now->type)] -= now->gpus;
  // The rest goes to each job that got none: the smallest share, in the queue's order.
  for (std::size_t i = 0; i < shares.size(); ++i) {
    Share& share = shares[i];
    if (share.step >= 0) continue;
    share.ladder = ladder_for(*share.job, known[i], left);
    if (share.ladder.empty()) continue;
    share.step = 0;
    left[static_cast<std::size_t>(share.now()->type)] -= share.gpus();
  }
  grow(shares, left);

  std::vector<Request> requests;
  for (const Share& share : shares) {
    Request request{share.job, {}, false};
    for (int k = share.step; k >= 0; --k)
      request.choices.push_back(share.ladder[static_cast<std::size_t>(k)]);
    if (const Configuration* now = share.now())
      request.keeps = now->gpus == planner::count(share.job->held) &&
                      now->nodes == static_cast<int>(share.job->held.size());
    requests.push_back(std::move(request));
  }
  decide_plans(decisions, requests, pool, view);
  return decisions;
}

}  // namespace swell::policy
