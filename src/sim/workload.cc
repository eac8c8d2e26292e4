// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/workload.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "core/count_of.h"
#include "sim/random.h"

namespace swell::sim {

namespace {

// Bounds of a job's time limit over its duration: users ask for more than they need, by different
// factors.
constexpr double kMinLimit = 1.1, kMaxLimit = 3.0;
constexpr double kShortest_s = 1;

Trace cut(const Trace& trace, const WorkloadOptions& options) {
  Trace kept;
  double first = trace.empty() ? 0 : trace.front().submit_s;
  for (const TraceJob& job : trace) first = std::min(first, job.submit_s);
  for (TraceJob job : trace) {
    if (options.hours > 0 && job.submit_s - first >= options.hours * 3600) continue;
    if (options.cap_hours > 0) job.duration_s = std::min(job.duration_s, options.cap_hours * 3600);
    kept.push_back(job);
  }
  return kept;
}

/// Draws one job from each of `count` classes of equal size by duration.
Trace sample(Trace trace, std::size_t count, Random& random) {
  std::stable_sort(trace.begin(), trace.end(), [](const TraceJob& a, const TraceJob& b) {
    return a.duration_s < b.duration_s;
  });
  Trace chosen;
  const double width = static_cast<double>(trace.size()) / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>((static_cast<double>(i) + random.uniform()) * width);
    chosen.push_back(trace[std::min(at, trace.size() - 1)]);
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
  return chosen;
}

/// Draws job types: a model by the weight of its size, then one of the GPU types that hold it by
/// how many of these there are.
class TypeChooser {
 public:
  /// `gpus`: the number that types must have; 0: any.
  TypeChooser(const std::vector<JobType>& types, const cluster::Cluster& cluster,
              const WorkloadOptions& options, int gpus_of_type) {
    const double weights[] = {options.mix.s, options.mix.m, options.mix.l, options.mix.xl};
    const models::Model* last_model = nullptr;
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (gpus_of_type > 0 && types[i].gpus != gpus_of_type) continue;
      std::size_t size = std::string_view("SMLX").find(types[i].size);
      if (size == 3 && options.xl_is_large) size = 2;
      std::vector<Model>& models = of_size_[size];
      if (last_model == nullptr || types[i].model->name != last_model->name) models.emplace_back();
      last_model = types[i].model.get();
      int gpus = 0;
      for (const cluster::Node& node : cluster.nodes())
        gpus += static_cast<int>(std::count(node.gpus.begin(), node.gpus.end(), types[i].gpu_type));
      models.back().types.emplace_back(static_cast<int>(i), gpus);
      models.back().gpus += gpus;
    }
    for (std::size_t size = 0; size < 4; ++size) {
      if (of_size_[size].empty()) continue;
      weight_[size] = weights[size];
      sum_ += weights[size];
    }
  }
  bool empty() const { return !(sum_ > 0); }
  int choose(Random& random) const {
    double left = random.uniform() * sum_;
    for (std::size_t size = 0; size < 4; ++size) {
      if (weight_[size] <= 0) continue;
      last_ = size;
      if ((left -= weight_[size]) < 0) break;
    }
    const Model& model = of_size_[last_][random.below(of_size_[last_].size())];
    if (model.types.size() == 1) return model.types.front().first;
    auto gpu = static_cast<int>(random.below(static_cast<std::size_t>(model.gpus)));
    for (const auto& [type, gpus] : model.types)
      if ((gpu -= gpus) < 0) return type;
    return model.types.back().first;
  }

 private:
  struct Model {
    std::vector<std::pair<int, int>> types;  ///< with the number of GPUs that the cluster has
    int gpus = 0;
  };
  std::vector<Model> of_size_[4];
  double weight_[4] = {0, 0, 0, 0};
  double sum_ = 0;
  mutable std::size_t last_ = 0;
};

double gpu_time(const Trace& trace) {
  double sum = 0;
  for (const TraceJob& job : trace) sum += job.gpus * job.duration_s;
  return sum;
}

}  // namespace

Result<Workload> make_workload(const Trace& whole, const std::vector<JobType>& types,
                               const cluster::Cluster& cluster, const WorkloadOptions& options,
                               std::uint64_t seed) {
  Trace trace = cut(whole, options);
  if (trace.empty())
    return Error(fmt::format("no job of the trace is submitted in its first {}",
                             count_of(options.hours, "hour")));
  // By number of GPUs; 0: any.
  std::map<int, TypeChooser> choosers;
  for (const TraceJob& job : trace) {
    const int gpus = options.own_gpus ? static_cast<int>(job.gpus) : 0;
    const auto [at, is_new] = choosers.try_emplace(gpus, types, cluster, options, gpus);
    if (!is_new || !at->second.empty()) continue;
    if (options.own_gpus)
      return Error(fmt::format("no model that the mix asks for has a plan on {} of cluster {}",
                               count_of(gpus, "GPU"), cluster.name()));
    return Error(fmt::format("no model that the mix asks for fits cluster {} with its {}",
                             cluster.name(), count_of(cluster.gpu_count(), "GPU")));
  }

  const double share = options.sample ? cluster.gpu_count() / options.trace_gpus : 1;
  const double offered = gpu_time(trace) * share;
  Random sampling{seed, kSampling};
  if (options.sample) {
    auto count = static_cast<std::size_t>(std::llround(static_cast<double>(trace.size()) * share));
    trace = sample(std::move(trace), std::clamp<std::size_t>(count, 1, 1000000), sampling);
  }

  Workload workload{types, {}};
  double mapped = 0;
  Random models{seed, kModels}, limits{seed, kLimits}, consents{seed, kConsent},
      deadlines{seed, kDeadlines};
  for (const TraceJob& job : trace) {
    JobSpec spec;
    spec.id = static_cast<std::uint32_t>(workload.jobs.size() + 1);
    spec.type = choosers.at(options.own_gpus ? static_cast<int>(job.gpus) : 0).choose(models);
    spec.elastic = models.uniform() >= options.rigid_share;
    // Drawn for rigid jobs too: the same jobs consent whatever the share of rigid ones.
    spec.consents = consents.uniform() < options.consent_share && spec.elastic;
    const double times = deadlines.between(options.soonest, options.latest);
    if (deadlines.uniform() < options.deadline_share && spec.elastic) spec.deadline_s = times;
    spec.submit_s = job.submit_s / options.intensity;
    spec.basic_s = job.duration_s;
    spec.account = job.account;
    spec.limit_s = limits.between(kMinLimit, kMaxLimit);
    mapped += spec.basic_s * types[static_cast<std::size_t>(spec.type)].gpus;
    workload.jobs.push_back(spec);
  }
  const double first = workload.jobs.front().submit_s;
  for (JobSpec& spec : workload.jobs) {
    spec.submit_s -= first;
    spec.basic_s = std::max(kShortest_s, spec.basic_s * offered / mapped);
    spec.limit_s *= spec.basic_s;
    if (spec.deadline_s > 0) spec.deadline_s = spec.submit_s + spec.deadline_s * spec.basic_s;
  }
  if (options.max_jobs > 0 && workload.jobs.size() > static_cast<std::size_t>(options.max_jobs))
    workload.jobs.resize(static_cast<std::size_t>(options.max_jobs));
  return workload;
}

}  // namespace swell::sim
