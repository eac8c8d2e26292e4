// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/arena.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/policy/rivals/arena_jobs.h"

namespace swell::policy {

namespace {

// Seconds that a search of all plans takes, as the authors' program has it.
constexpr double kSearch_s_per_gpu = 150, kMaxSearch_s = 600;

/// One change of a plan: <job, OP> of Algorithm 1.
struct Operation {
  std::size_t job = 0;
  ArenaShare share;
  double score = 0;  ///< loss or gain of the objective for each GPU
};

class Step {
 public:
  Step(const ClusterView& view, const std::vector<Contender>& jobs, const Arena::Options& options,
       CurveCache& curves)
      : view_(view),
        options_(options),
        depth_(static_cast<int>(options.depth)),
        jobs_(view, jobs,
              {options.objective, options.planner != 0, static_cast<int>(options.largest)},
              curves) {}

  /// Schedule(), lines 2 to 11. GPUs of jobs that ended are free in the view already (lines 3 and
  /// 4).
  SimulatedDecisions run() {
    int blocked = static_cast<int>(options_.queues) + 1;    // line 5: lambda'
    for (const auto& [queue, job] : sorted_queue()) {       // line 6
      const bool launched = launch(job, queue <= blocked);  // line 7
      if (launched) continue;
      if (queue > blocked) break;  // line 9
      blocked = queue;             // line 8
    }
    scale_up();  // line 10
    if (is_time_to_migrate()) jobs_.defragment(depth_, options_.min_gain);
    SimulatedDecisions decisions{jobs_.decisions(), {}, 0};  // line 11
    if (options_.pruning == 0) decisions.search_s = search_s(decisions);
    return decisions;
  }

 private:
  struct Waiting {
    int queue;
    std::size_t job;
  };
  std::vector<Waiting> sorted_queue() const {
    std::vector<Waiting> queue;
    for (std::size_t i = 0; i < jobs_.all().size(); ++i) {
      const Contender& job = *jobs_.all()[i].job;
      if (!job.running)
        queue.push_back({queue_after(view_.now_s - job.submitted_s,
                                     static_cast<int>(options_.queues), options_.promotion_s),
                         i});
    }
    std::stable_sort(queue.begin(), queue.end(),
                     [](const Waiting& a, const Waiting& b) { return a.queue < b.queue; });
    return queue;
  }

  bool changes_type() const noexcept { return options_.heterogeneous != 0; }
  bool changes_number() const noexcept { return options_.elastic != 0; }

  /// LEventHandler(), lines 12 to 16. `may_take`: whether other jobs may be scaled down for it,
  /// which only the blocked queue and those before it may demand.
  bool launch(std::size_t id, bool may_take) {
    if (jobs_.all()[id].job->rigid) return launch_rigid(id, may_take);
    std::optional<ArenaShare> target = first_target(id);
    if (!target) return false;
    const std::size_t mark = jobs_.mark();
    for (int changes = 0; !jobs_.place(id, *target); ++changes) {  // line 13
      std::optional<Operation> next;
      if (changes < depth_)
        next = optimal_scale_down(id, *target, target->type, target->gpus, may_take);  // line 14
      if (!next || (next->job != id && !apply(*next))) {
        jobs_.undo(mark);  // line 16: no plan
        return false;
      }
      if (next->job == id) target = next->share;
    }
    return true;  // line 15
  }

  bool launch_rigid(std::size_t id, bool may_take) {
    const ArenaJob& job = jobs_.all()[id];
    const std::size_t mark = jobs_.mark();
    for (int type = 0; type < jobs_.types(); ++type) {
      if (job.users_type >= 0 && type != job.users_type) continue;
      for (int changes = 0;; ++changes) {
        if (jobs_.start_rigid(id, type)) return true;
        if (!may_take || changes == depth_) break;
        const auto next = optimal_scale_down(id, {}, type, job.job->asked, true);
        if (!next || !apply(*next)) break;
      }
      jobs_.undo(mark);
    }
    return false;
  }

  /// Returns what the user asked for, or the nearest share that the job may have.
  std::optional<ArenaShare> first_target(std::size_t id) const {
    const ArenaJob& job = jobs_.all()[id];
    std::vector<int> types;
    if (job.users_type >= 0) types.push_back(job.users_type);
    for (int type = 0; type < jobs_.types(); ++type)
      if (type != job.users_type && (changes_type() || job.users_type < 0)) types.push_back(type);
    for (const int type : types) {
      std::optional<ArenaShare> found;
      for (const ArenaShare& row : job.rows(type))
        if (!found || row.gpus <= job.job->asked) found = row;
      if (found) return found;
    }
    return std::nullopt;
  }

  std::vector<int> idle_by_type() const {
    std::vector<int> idle;
    for (int type = 0; type < jobs_.types(); ++type) idle.push_back(jobs_.pool().free(type));
    return idle;
  }

  bool apply(const Operation& one) {
    const ArenaJob& job = jobs_.all()[one.job];
    const bool smaller = one.share.type == job.type() && one.share.gpus < job.count();
    return smaller ? jobs_.shrink(one.job, one.share) : jobs_.place(one.job, one.share);
  }

  /// GetOptimalScaleDown(): the change that costs least for each GPU that it contributes to the
  /// `wanted` ones of `type` for the job `id`. `target`: what that job would start with.
  std::optional<Operation> optimal_scale_down(std::size_t id, const ArenaShare& target, int type,
                                              int wanted, bool may_take) const {
    const std::vector<int> idle = idle_by_type();
    // If enough is idle but no plan fits there, take one more GPU.
    const int lacks = std::max(1, wanted - idle[static_cast<std::size_t>(type)]);
    std::optional<Operation> best;
    const auto consider = [&](std::size_t job, const ArenaShare& share, double from, int helps) {
      if (helps <= 0) return;
      const ArenaJob& its = jobs_.all()[job];
      const double loss =
          (jobs_.worth(its, from) - jobs_.worth(its, share.throughput)) / std::min(helps, lacks);
      if (!best || loss < best->score) best = Operation{job, share, loss};
    };
    const ArenaJob& own = jobs_.all()[id];
    if (!own.job->rigid) {
      if (changes_number())
        if (const auto less = below(own, target.type, target.gpus))
          consider(id, *less, target.throughput, target.gpus - less->gpus);
      for (int other = 0; changes_type() && other < jobs_.types(); ++other)
        if (other != target.type)
          if (const auto there = at_most(own, other, target.gpus))
            consider(id, *there, target.throughput,
                     lacks - std::max(0, there->gpus - idle[static_cast<std::size_t>(other)]));
    }
    for (std::size_t i = 0; may_take && i < jobs_.all().size(); ++i) {
      const ArenaJob& job = jobs_.all()[i];
      if (i == id || !job.scales() || job.type() != type) continue;
      if (changes_number())
        if (const auto less = below(job, type, job.count()))
          consider(i, *less, job.throughput, job.count() - less->gpus);
      for (int other = 0; changes_type() && other < jobs_.types(); ++other)
        if (other != type)
          if (const auto there =
                  at_most(job, other, std::min(job.count(), idle[static_cast<std::size_t>(other)]));
              there && (changes_number() || there->gpus == job.count()))
            consider(i, *there, job.throughput, job.count());
    }
    return best;
  }

  static std::optional<ArenaShare> below(const ArenaJob& job, int type, int gpus) {
    std::optional<ArenaShare> found;
    for (const ArenaShare& row : job.rows(type))
      if (row.gpus < gpus) found = row;
    return found;
  }
  std::optional<ArenaShare> at_most(const ArenaJob& job, int type, int gpus) const {
    std::optional<ArenaShare> found = below(job, type, gpus + 1);
    if (found && !changes_number() && found->gpus != gpus) return std::nullopt;
    return found;
  }

  /// InFlightHandler(), lines 17 to 20.
  void scale_up() {
    std::set<std::tuple<std::size_t, int, int>> failed;
    for (int changes = 0; changes < depth_;) {
      const auto next = optimal_scale_up(failed);
      if (!next) return;
      if (jobs_.place(next->job, next->share, options_.min_gain)) ++changes;
      else failed.insert({next->job, next->share.type, next->share.gpus});
    }
  }

  /// GetOptimalScaleUp(): the change that gains most for each further GPU, on GPUs that are idle.
  std::optional<Operation> optimal_scale_up(
      const std::set<std::tuple<std::size_t, int, int>>& failed) const {
    const std::vector<int> free = idle_by_type();
    std::optional<Operation> best;
    for (std::size_t i = 0; i < jobs_.all().size(); ++i) {
      const ArenaJob& job = jobs_.all()[i];
      if (!job.launched() || !job.scales()) continue;
      const int now = job.count(), type = job.type();
      for (int other = 0; other < jobs_.types(); ++other) {
        if (other != type && !changes_type()) continue;
        const int idle = free[static_cast<std::size_t>(other)] + (other == type ? now : 0);
        for (const ArenaShare& row : job.rows(other)) {
          if (row.gpus > idle) break;
          // Take one step each time: the next size, or at most twice as many GPUs of another type.
          const bool is_step = other == type ? row.gpus > now : row.gpus <= 2 * now;
          if (!is_step || (!changes_number() && row.gpus != now) ||
              failed.contains({i, other, row.gpus}) ||
              row.throughput < job.throughput * (1 + options_.min_gain))
            continue;
          const double gain =
              (jobs_.worth(job, row.throughput) - jobs_.worth(job, job.throughput)) /
              std::max(1, row.gpus - now);
          if (gain > 0 && (!best || gain > best->score)) best = Operation{i, row, gain};
          if (other == type) break;
        }
      }
    }
    return best;
  }

  /// Returns whether a migration has come due since the step before this one.
  bool is_time_to_migrate() const {
    if (options_.migration_s <= 0) return false;
    const auto periods = [&](double at_s) { return std::floor(at_s / options_.migration_s); };
    return periods(view_.now_s) != periods(view_.now_s - options_.round_s);
  }

  static double search_s(const Decisions& decisions) {
    double longest = 0;
    for (const NewPlan& plan : decisions.plans)
      longest =
          std::max(longest, std::min(kMaxSearch_s, kSearch_s_per_gpu * plan.layout.gpu_count()));
    return longest;
  }

  const ClusterView& view_;
  const Arena::Options& options_;
  int depth_;
  ArenaJobs jobs_;
};

}  // namespace

int queue_after(double waited_s, int queues, double promotion_s) noexcept {
  const double promotions = std::floor(std::max(0.0, waited_s) / promotion_s);
  return promotions >= queues ? 1 : queues - std::min(queues - 1, static_cast<int>(promotions));
}

SimulatedDecisions Arena::simulate(const ClusterView& view) const {
  if (!view.machines) return {};
  const std::vector<Contender> jobs = contenders(view);
  return Step(view, jobs, options_, curves_).run();
}

}  // namespace swell::policy
