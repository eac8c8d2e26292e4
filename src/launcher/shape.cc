// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/shape.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace swell::launcher {

Result<Shape> shape_of(JobId job, const Options& options, const std::vector<NodeShare>& shares) {
  Shape shape;
  const int nodes = static_cast<int>(shares.size());
  for (const NodeShare& share : shares) shape.gpus += share.gpus;
  if (shape.gpus == 0) return Error("the job has no GPUs");
  if (options.nodes && *options.nodes != nodes)
    return Error(fmt::format("--nodes={}: an elastic run uses all {} nodes of the job",
                             *options.nodes, nodes));
  if (options.gpus && *options.gpus != shape.gpus)
    return Error(fmt::format("--gpus={}: an elastic run uses all {} GPUs of the job", *options.gpus,
                             shape.gpus));

  std::optional<int> workers = options.ntasks;
  if (!workers && options.ntasks_per_node) workers = *options.ntasks_per_node * nodes;
  shape.gpus_per_worker = options.gpus_per_task.value_or(1);
  if (workers) {
    if (*workers > shape.gpus || shape.gpus % *workers != 0)
      return Error(fmt::format("{} workers cannot share {} GPUs evenly", *workers, shape.gpus));
    if (options.gpus_per_task && *workers * *options.gpus_per_task != shape.gpus)
      return Error(fmt::format("{} workers with {} GPUs each are not the job's {} GPUs", *workers,
                               *options.gpus_per_task, shape.gpus));
    shape.gpus_per_worker = shape.gpus / *workers;
  }

  int cpus = std::numeric_limits<int>::max(), all_cpus = 0;
  std::int64_t memory = std::numeric_limits<std::int64_t>::max();
  for (const NodeShare& share : shares) {
    if (options.gpus_per_node && *options.gpus_per_node != share.gpus)
      return Error(fmt::format("{} GPUs a node are asked for; an elastic run uses all {} on {}",
                               *options.gpus_per_node, share.gpus, share.node));
    if (share.gpus == 0 || share.gpus % shape.gpus_per_worker != 0)
      return Error(fmt::format("workers of {} GPUs do not fit the {} GPUs on {}",
                               shape.gpus_per_worker, share.gpus, share.node));
    Place place;
    place.id = static_cast<int>(shape.places.size());
    place.job = job;
    place.node = share.node;
    place.cpus = share.cpus;
    place.gpus = share.gpus;
    place.gpu_list = share.gpu_list;
    place.workers = share.gpus / shape.gpus_per_worker;
    shape.workers += place.workers;
    cpus = std::min(cpus, share.cpus / place.workers);
    all_cpus += share.cpus;
    memory = std::min(memory, share.memory_mib / place.workers);
    shape.places.push_back(std::move(place));
  }
  shape.shares_cpus = cpus < 1;
  shape.cpus_per_worker = options.cpus_per_task.value_or(std::max(1, cpus));
  shape.memory_mib_per_worker = memory;
  if (shape.cpus_per_worker < 1 || shape.cpus_per_worker > std::max(1, cpus))
    return Error(fmt::format("--cpus-per-task={}: the job has {} CPUs for {} workers",
                             shape.cpus_per_worker, all_cpus, shape.workers));
  return shape;
}

}  // namespace swell::launcher
