// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/gavel.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/policy/rivals/allocation_set.h"
#include "core/policy/rivals/fair_program.h"

namespace swell::policy {

namespace {

constexpr double kNoShare = 1e-6;  // a smaller share is 0 up to the simplex's error

struct Entry {
  const Contender* job = nullptr;
  std::vector<Configuration> configurations;  ///< at most one for each type
};

/// A pair of job and type, by how far it is below its share of time.
struct Pair {
  std::size_t entry = 0;
  std::size_t choice = 0;
  /// Share due over the share of time so far; infinite if the job has had none yet.
  double priority = 0;
  double share = 0;
  double rate = 0;
  bool before(const Pair& other) const noexcept {
    return std::tie(priority, share, rate) > std::tie(other.priority, other.share, other.rate);
  }
};

/// Returns for each type the best allowed configuration up to the user's number of GPUs.
std::vector<Configuration> on_each_type(const Contender& job, const ClusterView& view,
                                        const GpuPool& pool, CurveCache& curves) {
  if (job.rigid) return configurations(job, view, pool, curves);
  std::vector<Configuration> found;
  for (int type = 0; type < static_cast<int>(view.machines->types().size()); ++type) {
    const int whole = pool.per_node(type);
    if (whole == 0) continue;
    const auto curve =
        curves.get(job.training, view.machines, type, {}, job.asked, Sizes::powers_of_two);
    std::optional<Configuration> best;
    for (const planner::SymmetricRow& row : *curve) {
      const bool fits = row.gpus <= whole || row.gpus % whole == 0;
      if (fits && row.gpus <= pool.all(type) && job.may_have(row.gpus))
        best = {type, row.gpus, std::max(1, row.gpus / whole), row.degrees, row.throughput};
    }
    if (best) found.push_back(*best);
  }
  return found;
}

bool is_held(const Contender& job, const Configuration& one) {
  return !job.held.empty() && job.held.front().type == one.type &&
         planner::count(job.held) == one.gpus && static_cast<int>(job.held.size()) == one.nodes;
}

}  // namespace

Decisions Gavel::decide(const ClusterView& view) const {
  Decisions decisions;
  if (!view.machines) return decisions;
  const std::vector<Contender> jobs = contenders(view);
  const GpuPool pool(view);
  FairProgram program;
  int all = 0;
  for (int type = 0; type < static_cast<int>(view.machines->types().size()); ++type) {
    program.capacity.push_back(pool.free(type));
    all += pool.all(type);
  }
  std::vector<Entry> entries;
  for (const Contender& job : jobs) {
    if (!job.movable) continue;
    for (const planner::Island& island : job.held)
      program.capacity[static_cast<std::size_t>(island.type)] += island.count();
    Entry entry{&job, on_each_type(job, view, pool, curves_)};
    // Normalize by the speed with an equal part of each type, and for each GPU asked for.
    double equal = 0;
    for (const Configuration& one : entry.configurations)
      equal += one.throughput * pool.all(one.type) / std::max(1, all);
    std::vector<FairChoice> choices;
    for (const Configuration& one : entry.configurations)
      choices.push_back({one.type, one.gpus, one.throughput / equal * job.asked});
    program.jobs.push_back(std::move(choices));
    entries.push_back(std::move(entry));
  }

  const auto share = fair_shares(program, options_.sum != 0);
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Contender& job = *entries[i].job;
    const double age_s = std::max(view.now_s - job.submitted_s, options_.round_s);
    for (std::size_t k = 0; k < share[i].size(); ++k) {
      const FairChoice& choice = program.jobs[i][k];
      const auto type = static_cast<std::size_t>(choice.type);
      const double received = (type < job.held_s.size() ? job.held_s[type] : 0) / age_s,
                   due = share[i][k] > kNoShare ? share[i][k] : 0;
      // GPUs that are left go to pairs without a share, too.
      const double priority = due <= 0        ? 0
                              : received <= 0 ? std::numeric_limits<double>::infinity()
                                              : due / received;
      pairs.push_back({i, k, priority, due, choice.rate});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.before(b); });
  std::vector<int> left = program.capacity;
  std::vector<Request> requests;
  for (const Entry& entry : entries) requests.push_back({entry.job, {}, false});
  for (const Pair& pair : pairs) {
    const Configuration& one = entries[pair.entry].configurations[pair.choice];
    int& there = left[static_cast<std::size_t>(one.type)];
    if (!requests[pair.entry].choices.empty() || there < one.gpus) continue;
    there -= one.gpus;
    requests[pair.entry].choices.push_back(one);
    requests[pair.entry].keeps = is_held(*entries[pair.entry].job, one);
  }
  decide_plans(decisions, requests, pool, view);
  return decisions;
}

}  // namespace swell::policy
