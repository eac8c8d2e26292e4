// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/sia.h"

#include <algorithm>
#include <cmath>

#include "core/policy/rivals/allocation_set.h"

namespace swell::policy {

namespace {

constexpr double kMinUtility = 1e-4;  // floor of utilities: a power of less would dominate the sum

struct Entry {
  const Contender* job = nullptr;
  std::vector<Configuration> configurations;
  int current = -1;  ///< index of the configuration that it runs with; -1: none
};

int find_current(const Entry& entry) {
  const planner::Islands& held = entry.job->held;
  if (held.empty()) return -1;
  for (std::size_t k = 0; k < entry.configurations.size(); ++k) {
    const Configuration& one = entry.configurations[k];
    if (one.type == held.front().type && one.gpus == planner::count(held) &&
        one.nodes == static_cast<int>(held.size()))
      return static_cast<int>(k);
  }
  return -1;
}

/// Removes configurations that a job may not have yet. Its smallest size is always allowed.
void limit_growth(Entry& entry, int growth) {
  if (growth == 0 || entry.job->rigid || entry.configurations.empty()) return;
  int min = entry.configurations.front().gpus;
  for (const Configuration& one : entry.configurations) min = std::min(min, one.gpus);
  const int max = std::max(min, growth * entry.job->training->max_gpus_so_far);
  std::erase_if(entry.configurations, [&](const Configuration& one) { return one.gpus > max; });
}

/// Returns normalized throughputs, equation 1: over the throughput of the slowest configuration,
/// times the GPUs of the latter.
std::vector<double> normalized(const Entry& entry) {
  const auto slowest = std::min_element(
      entry.configurations.begin(), entry.configurations.end(),
      [](const Configuration& a, const Configuration& b) { return a.throughput < b.throughput; });
  std::vector<double> utility;
  for (const Configuration& one : entry.configurations)
    utility.push_back(one.throughput / slowest->throughput * slowest->gpus);
  return utility;
}

}  // namespace

double restart_factor(double age_s, int restarts, double restart_s) noexcept {
  if (age_s < restart_s) return 1;
  return std::max(0.0, age_s - restarts * restart_s) / (age_s + restart_s);
}

Decisions Sia::decide(const ClusterView& view) const {
  Decisions decisions;
  if (!view.machines) return decisions;
  const std::vector<Contender> jobs = contenders(view);
  GpuPool pool(view);
  std::vector<Entry> entries;
  AllocationProgram program;
  for (int type = 0; type < static_cast<int>(view.machines->types().size()); ++type)
    program.capacity.push_back(pool.free(type));
  for (const Contender& job : jobs) {
    if (!job.movable) continue;
    Entry entry{&job, configurations(job, view, pool, curves_), -1};
    if (entry.configurations.empty()) continue;
    limit_growth(entry, options_.growth);
    entry.current = find_current(entry);
    for (const planner::Island& island : job.held)
      program.capacity[static_cast<std::size_t>(island.type)] += island.count();

    const double factor = job.running
                              ? restart_factor(view.now_s - job.submitted_s, job.reconfigurations,
                                               restart_s(job, *view.machines))
                              : 1;
    const std::vector<double> utility = normalized(entry);
    std::vector<Choice> choices;
    for (std::size_t k = 0; k < utility.size(); ++k) {
      const double discounted =
          std::max(kMinUtility, utility[k] * (static_cast<int>(k) == entry.current ? 1 : factor));
      const double powered = std::pow(discounted, options_.fairness);
      // The sum is maximized if the exponent is above 0; the queueing penalty counts for jobs
      // without a choice.
      const double cost = (options_.fairness < 0 ? powered : -powered) - options_.queueing_penalty;
      choices.push_back({entry.configurations[k].type, entry.configurations[k].gpus, cost});
    }
    program.jobs.push_back(std::move(choices));
    entries.push_back(std::move(entry));
  }

  const Allocation allocation = minimize(program);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::vector<Configuration>& all = entries[i].configurations;
    const int chosen = allocation.chosen[i];
    Request request{entries[i].job, {}, chosen >= 0 && chosen == entries[i].current};
    for (int k = chosen; k >= 0; --k)
      if (all[static_cast<std::size_t>(k)].type == all[static_cast<std::size_t>(chosen)].type)
        request.choices.push_back(all[static_cast<std::size_t>(k)]);
    requests.push_back(std::move(request));
  }
  decide_plans(decisions, requests, pool, view);
  return decisions;
}

}  // namespace swell::policy
