// SPDX-License-Identifier: GPL-2.0-or-later
// Job types of Suika's Table 1 for a cluster, with tuned initial plans.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/count_of.h"
#include "core/planner/symmetric.h"
#include "sim/basic_plan.h"
#include "sim/judge/judge.h"
#include "sim/judge/memory.h"
#include "sim/judge/profiling.h"
#include "sim/workload.h"

namespace swell::sim {

namespace {

struct Row {
  const char* model;
  char size;
};
constexpr Row kTable1[] = {
    {"gpt2-350m", 'S'},  {"gpt2-1.3b", 'S'},  {"gpt2-2.6b", 'S'}, {"qwen2-0.5b", 'S'},
    {"qwen2-1.5b", 'S'}, {"gpt2-6.7b", 'M'},  {"llama2-7b", 'M'}, {"qwen2-7b", 'M'},
    {"gpt2-15b", 'L'},   {"llama2-13b", 'L'}, {"gpt2-39b", 'X'},  {"llama-30b", 'X'},
    {"gpt2-76b", 'X'},   {"llama-65b", 'X'},  {"qwen2-72b", 'X'}, {"llama2-70b", 'X'},
    {"gpt2-175b", 'X'},
};

/// Gives `type` its fastest symmetric plan on all of its GPUs with its number of micro-batches;
/// false where none fits memory.
bool tune_once(JobType& type, const cluster::Cluster& cluster, const GpuSet& gpus) {
  const judge::Hardware usual =
      judge::make_hardware(*type.model, cluster, type.software, [](double) { return 1.0; });
  double best = 0;
  const auto degrees =
      planner::degrees_for(*type.model, type.model->global_batch / type.micro_batches);
  for (int tp : degrees.tp)
    for (int pp = 1; pp <= type.model->layers && pp * tp <= type.gpus; ++pp) {
      if (type.gpus % (pp * tp) != 0) continue;
      JobType tried = type;
      tried.pp = pp, tried.tp = tp, tried.dp = type.gpus / (pp * tp);
      if (!degrees.divides(tried.dp)) continue;
      const auto layout = basic_layout(tried, gpus, cluster);
      if (!layout || !judge::fits(*layout, cluster, *type.model, usual.software)) continue;
      const double seconds = judge::execute(*layout, cluster, usual).seconds;
      if (best > 0 && seconds >= best) continue;
      best = seconds;
      type = tried;
    }
  return best > 0;
}

/// Tunes with the type's number of micro-batches or, where no plan fits, with more and smaller
/// ones, as a user would.
Result<void> tune(JobType& type, const cluster::Cluster& cluster) {
  const auto gpus = first_gpus(type.gpus, cluster, type.gpu_type);
  const std::string& gpu = cluster.type(type.gpu_type).name;
  if (!gpus)
    return Error(fmt::format(
        "cluster {} has no even spread of {} {} over nodes for model {}; leave its size out of the mix or use larger nodes",
        cluster.name(), count_of(type.gpus, "GPU"), gpu, type.model->name));
  for (const int given = type.micro_batches; type.micro_batches <= type.model->global_batch;
       type.micro_batches *= 2) {
    if (type.model->global_batch % type.micro_batches != 0) break;
    if (tune_once(type, cluster, *gpus)) return {};
    if (type.micro_batches > 16 * given) break;
  }
  return Error(fmt::format(
      "no plan of model {} on {} {} of cluster {} fits their memory; leave its size out of the mix or use GPUs with more memory",
      type.model->name, count_of(type.gpus, "GPU"), gpu, cluster.name()));
}

/// `type` on as few GPUs as a job of it consents to for `share`: the smallest number, of at least
/// that share, which lies evenly on nodes and on which a plan fits. Null where that is all of them.
std::shared_ptr<const JobType> least_of(const JobType& type, double share,
                                        const cluster::Cluster& cluster) {
  // A product such as 0.7 * 10 may lie just above the whole number.
  const int from = std::max(1, static_cast<int>(std::ceil(share * type.gpus - 1e-9)));
  for (int gpus = from; gpus < type.gpus; ++gpus) {
    JobType tried = type;
    tried.gpus = gpus;
    if (tune(tried, cluster)) return std::make_shared<const JobType>(std::move(tried));
  }
  return nullptr;
}

/// Adds `type` on each of options.gpu_counts and each GPU type on which a plan fits.
void add_counts(std::vector<JobType>& types, const JobType& type, const cluster::Cluster& cluster,
                const JobTypeOptions& options) {
  for (const int gpus : options.gpu_counts)
    for (int gpu = 0; gpu < static_cast<int>(cluster.types().size()); ++gpu) {
      JobType tuned = type;
      tuned.gpus = gpus;
      tuned.gpu_type = gpu;
      if (!tune(tuned, cluster)) continue;
      if (options.least_share > 0) tuned.least = least_of(tuned, options.least_share, cluster);
      types.push_back(std::move(tuned));
    }
}

}  // namespace

Result<std::vector<JobType>> job_types(const cluster::Cluster& cluster,
                                       const JobTypeOptions& options) {
  std::vector<JobType> types;
  for (const Row& row : kTable1) {
    if (row.size == 'X' && !options.with_xl) continue;
    const auto entry = models::find_model(row.model);
    if (!entry) return entry.error();
    JobType type;
    type.model = std::make_shared<models::Model>(entry->model);
    type.expected =
        std::make_shared<perf::Coefficients>(perf::expected_coefficients(entry->model, cluster));
    type.size = row.size;
    type.gpus = entry->pp * entry->dp * entry->tp;
    type.micro_batches = entry->micro_batches;
    if (options.launch_floor_s > 0) type.software.layer_launch_s = options.launch_floor_s;
    if (!options.gpu_counts.empty()) {
      add_counts(types, type, cluster, options);
      continue;
    }
    if (type.gpus > cluster.gpu_count()) {
      if (options.leave_out_large) continue;
      return Error(fmt::format(
          "model {} needs {} and cluster {} has {}; use a larger one, or leave such models out (--leave-out-large)",
          row.model, count_of(type.gpus, "GPU"), cluster.name(), cluster.gpu_count()));
    }
    const std::size_t before = types.size();
    Result<void> good;
    for (int gpu = 0; gpu < static_cast<int>(cluster.types().size()); ++gpu) {
      JobType tuned = type;
      tuned.gpu_type = gpu;
      if (auto fits = tune(tuned, cluster); !fits) {
        if (good.ok()) good = fits.error();
        continue;
      }
      if (options.least_share > 0) tuned.least = least_of(tuned, options.least_share, cluster);
      types.push_back(std::move(tuned));
    }
    if (types.size() == before) return good.error();
  }
  if (types.empty())
    return Error(fmt::format("no model of Suika's Table 1 fits cluster {}", cluster.name()));
  return types;
}

std::vector<std::string> left_out(const cluster::Cluster& cluster, bool with_xl) {
  std::vector<std::string> names;
  for (const Row& row : kTable1) {
    const auto entry = models::find_model(row.model);
    if ((row.size != 'X' || with_xl) && entry &&
        entry->pp * entry->dp * entry->tp > cluster.gpu_count())
      names.emplace_back(row.model);
  }
  return names;
}

}  // namespace swell::sim
