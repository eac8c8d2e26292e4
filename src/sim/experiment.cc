// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/experiment.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "core/policy/rivals/registry.h"

namespace swell::sim {

namespace {

// Smallest cluster, in GPUs, that runs the XL models (Suika, Table 1: simulation only).
constexpr int kXlGpus = 512;

bool lends_nothing(const std::string& name) { return name == "fifo" || name == "sjf"; }

/// REQUIRES: check_policies() knows the name.
bool honours_consent(const std::string& name) {
  return !lends_nothing(name) &&
         (*policy::make_simulated_policy(name))->simulation_traits().honours_consent;
}

/// One simulation to run, and its outcome.
struct Task {
  std::string policy;
  const Workload* workload;
  std::uint64_t seed;
  bool without_consent = false;
  std::optional<Result<Outcome>> outcome = std::nullopt;
};

/// The same jobs, none of which consents to fewer GPUs.
Workload without_consent(Workload workload) {
  for (JobSpec& job : workload.jobs) job.consents = false;
  return workload;
}

Result<Outcome> run_one(const Experiment& experiment, const Task& task) {
  Setup setup;
  setup.profiles = experiment.profiles;
  setup.max_shortfall = experiment.max_shortfall;
  setup.clocks = experiment.clocks;
  std::unique_ptr<policy::SimulatedPolicy> policy;
  if (!lends_nothing(task.policy)) {
    policy::PolicyOptions options;
    options.fairness = experiment.fairness;
    if (experiment.aggressiveness >= 0) options.aggressiveness = experiment.aggressiveness;
    if (const auto its = experiment.settings.find(task.policy); its != experiment.settings.end()) {
      auto left = set_up(setup, its->second);
      if (!left) return left.error();
      options.parameters = std::move(*left);
    }
    auto made = policy::make_simulated_policy(task.policy, options);
    if (!made) return made.error();
    policy = std::move(*made);
  }
  auto order = make_queue_order(lends_nothing(task.policy) ? task.policy : experiment.base);
  if (!order) return order.error();
  setup.cluster = experiment.cluster;
  setup.workload = task.workload;
  setup.policy = policy.get();
  setup.order = order->get();
  setup.backfill = experiment.backfill;
  setup.seed = task.seed;
  setup.fixed_decision_time = experiment.fixed_decision_time;
  setup.remaining_known = experiment.remaining_known;
  setup.prediction_error = experiment.prediction_error;
  setup.reporting = experiment.reporting;
  setup.failures_per_day = experiment.failures_per_day;
  setup.max_factor = experiment.max_factor;
  setup.redeployment = experiment.redeployment;
  setup.rivals_as_measured = experiment.rivals_as_measured;
  setup.explain = experiment.explain && !task.without_consent;
  return simulate(setup);
}

void run_all(std::vector<Task>& tasks, const Experiment& experiment) {
  std::atomic<std::size_t> next{0};
  Mutex one_at_a_time;
  int done = 0;
  auto work = [&] {
    for (std::size_t i = next++; i < tasks.size(); i = next++) {
      tasks[i].outcome = run_one(experiment, tasks[i]);
      const Lock lock(one_at_a_time);
      ++done;
      if (experiment.progress) experiment.progress(done, static_cast<int>(tasks.size()));
    }
  };
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < experiment.threads; ++i) others.emplace_back(work);
  } catch (const std::system_error&) {  // there can be no more threads: those that run do it all
  }
  work();
  for (std::thread& other : others) other.join();
}

/// The numbers of GPUs that jobs of the trace have, each once.
std::vector<int> gpu_counts(const Trace& trace) {
  std::set<int> counts;
  for (const TraceJob& job : trace) counts.insert(static_cast<int>(job.gpus));
  return {counts.begin(), counts.end()};
}

/// Workload of one seed. A generated trace has as many arrivals as give `load` with the mean job;
/// the sample is then scaled to exactly that.
Result<Workload> workload_for(const Experiment& experiment, const std::vector<JobType>& types,
                              std::uint64_t seed) {
  if (experiment.trace)
    return make_workload(*experiment.trace, types, *experiment.cluster, experiment.workload, seed);
  Trace trace = generate(experiment.generator, seed);
  if (trace.empty()) return Error("the generator made no job; give it more --hours");
  double sum = 0;
  for (const TraceJob& job : trace) sum += job.duration_s;
  const double wanted =
      experiment.load * experiment.cluster->gpu_count() * experiment.generator.hours * 3600;
  for (TraceJob& job : trace) job.gpus = wanted / sum;
  WorkloadOptions options = experiment.workload;
  options.sample = false;
  options.hours = 0;
  return make_workload(trace, types, *experiment.cluster, options, seed);
}

}  // namespace

Result<void> check_policies(const std::vector<std::string>& names, const Settings& settings) {
  if (names.empty()) return Error("there is no policy to simulate");
  for (const std::string& name : names) {
    if (lends_nothing(name)) continue;
    if (auto made = policy::make_simulated_policy(name); !made)
      return Error(made.error().message() + "; also: fifo, sjf");
  }
  for (const auto& [name, parameters] : settings) {
    if (lends_nothing(name) || std::find(names.begin(), names.end(), name) == names.end())
      return Error(
          fmt::format("policy \"{}\" has settings, and {}", name,
                      lends_nothing(name) ? "knows none" : "is not among those to simulate"));
    Setup unused;
    policy::PolicyOptions options;
    auto left = set_up(unused, parameters);
    if (!left) return left.error().while_doing("policy " + name);
    options.parameters = std::move(*left);
    if (auto made = policy::make_simulated_policy(name, options); !made)
      return made.error().while_doing("policy " + name);
  }
  return {};
}

Result<Results> run(const Experiment& experiment) {
  const auto begin = std::chrono::steady_clock::now();
  if (auto good = check_policies(experiment.policies, experiment.settings); !good)
    return good.error();
  const bool with_xl = experiment.cluster->gpu_count() >= kXlGpus || experiment.workload.mix.xl > 0;
  auto types =
      job_types(*experiment.cluster,
                {.with_xl = with_xl,
                 .leave_out_large = experiment.leave_out_large,
                 .launch_floor_s = experiment.launch_floor_s,
                 .least_share = experiment.workload.consent_share > 0 ? experiment.least_share : 0,
                 .gpu_counts = experiment.workload.own_gpus ? gpu_counts(*experiment.trace)
                                                            : std::vector<int>()});
  if (!types) return types.error();
  Experiment given = experiment;
  given.workload.xl_is_large = with_xl && experiment.workload.mix.xl == 0;

  Results results;
  if (given.workload.own_gpus) {
    std::set<int> planned;
    for (const JobType& type : *types) planned.insert(type.gpus);
    results.without_plan = static_cast<int>(std::erase_if(*given.trace, [&](const TraceJob& job) {
      return !planned.contains(static_cast<int>(job.gpus));
    }));
  }
  results.policies = experiment.policies;
  results.types = *types;
  const auto seeds = static_cast<std::size_t>(experiment.seeds);
  const bool anybody_consents = experiment.workload.consent_share > 0;
  std::vector<Workload> workloads, plain;
  std::vector<Task> tasks;
  workloads.reserve(seeds);
  plain.reserve(seeds);
  for (std::size_t seed = 0; seed < seeds; ++seed) {
    const std::uint64_t number = static_cast<std::uint64_t>(experiment.first_seed) + seed;
    auto workload = workload_for(given, *types, number);
    if (!workload) return workload.error();
    workloads.push_back(std::move(*workload));
    tasks.push_back({"fifo", &workloads.back(), number});
    for (const std::string& name : experiment.policies)
      if (name != "fifo") tasks.push_back({name, &workloads.back(), number});
    if (!anybody_consents) continue;
    plain.push_back(without_consent(workloads.back()));
    for (const std::string& name : experiment.policies)
      if (honours_consent(name)) tasks.push_back({name, &plain.back(), number, true});
  }
  results.workload = workloads.front();
  results.jobs = static_cast<int>(workloads.front().jobs.size());
  run_all(tasks, given);

  for (const Task& task : tasks)
    if (!*task.outcome)
      return task.outcome->error().while_doing(
          fmt::format("policy {}, seed {}", task.policy, task.seed));
  // The outcomes of one policy, by seed; a policy that is named twice has run twice.
  const auto outcomes_of = [&](const std::string& name, bool without) {
    std::vector<Outcome> mine;
    std::optional<std::uint64_t> last;
    for (const Task& task : tasks)
      if (task.policy == name && task.without_consent == without && task.seed != last) {
        mine.push_back(**task.outcome);
        last = task.seed;
      }
    return mine;
  };
  results.fifo = outcomes_of("fifo", false);
  std::vector<const Outcome*> fifo;
  for (const Outcome& outcome : results.fifo) fifo.push_back(&outcome);
  for (const std::string& name : experiment.policies) {
    results.outcomes.push_back(outcomes_of(name, false));
    std::vector<const Outcome*> pointers;
    for (const Outcome& outcome : results.outcomes.back()) pointers.push_back(&outcome);
    results.metrics.push_back(measure(pointers, fifo));
    if (experiment.explain) results.explanations.push_back(explain(results.outcomes.back()));
    results.consent.emplace_back();
    if (anybody_consents && honours_consent(name))
      results.consent.back() = consent_cost(results.outcomes.back(), outcomes_of(name, true));
  }
  const auto swell = std::find(results.policies.begin(), results.policies.end(), "swell");
  if (swell != results.policies.end())
    for (const std::vector<Outcome>& mine : results.outcomes)
      results.to_swell.push_back(paired_ratios(
          mine, results.outcomes[static_cast<std::size_t>(swell - results.policies.begin())]));
  results.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return results;
}

}  // namespace swell::sim
