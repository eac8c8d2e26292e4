// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/basic_workers.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace swell::launcher {

Result<BasicWorkers> basic_workers(JobId job, const Options& options,
                                   const std::vector<NodeShare>& shares) {
  BasicWorkers basic;
  const int nodes = static_cast<int>(shares.size());
  for (const NodeShare& share : shares) basic.gpus += share.gpus;
  if (basic.gpus == 0) return Error("the job has no GPUs");
  if (options.nodes && *options.nodes != nodes)
    return Error(fmt::format("--nodes={}: an elastic run uses all {} nodes of the job",
                             *options.nodes, nodes));
  if (options.gpus && *options.gpus != basic.gpus)
    return Error(fmt::format("--gpus={}: an elastic run uses all {} GPUs of the job", *options.gpus,
                             basic.gpus));

  std::optional<int> workers = options.ntasks;
  if (!workers && options.ntasks_per_node) workers = *options.ntasks_per_node * nodes;
  basic.gpus_per_worker = options.gpus_per_task.value_or(1);
  if (workers) {
    if (*workers > basic.gpus || basic.gpus % *workers != 0)
      return Error(fmt::format("{} workers cannot share {} GPUs evenly", *workers, basic.gpus));
    if (options.gpus_per_task && *workers * *options.gpus_per_task != basic.gpus)
      return Error(fmt::format("{} workers with {} GPUs each are not the job's {} GPUs", *workers,
                               *options.gpus_per_task, basic.gpus));
    basic.gpus_per_worker = basic.gpus / *workers;
  }

  int cpus = std::numeric_limits<int>::max(), all_cpus = 0;
  std::int64_t memory = std::numeric_limits<std::int64_t>::max();
  for (const NodeShare& share : shares) {
    if (options.gpus_per_node && *options.gpus_per_node != share.gpus)
      return Error(fmt::format("{} GPUs a node are asked for; an elastic run uses all {} on {}",
                               *options.gpus_per_node, share.gpus, share.node));
    if (share.gpus == 0 || share.gpus % basic.gpus_per_worker != 0)
      return Error(fmt::format("workers of {} GPUs do not fit the {} GPUs on {}",
                               basic.gpus_per_worker, share.gpus, share.node));
    WorkerNode node;
    node.id = static_cast<int>(basic.nodes.size());
    node.job = job;
    node.name = share.node;
    node.cpus = share.cpus;
    node.gpus = share.gpus;
    node.gpu_list = share.gpu_list;
    node.workers = share.gpus / basic.gpus_per_worker;
    basic.workers += node.workers;
    cpus = std::min(cpus, share.cpus / node.workers);
    all_cpus += share.cpus;
    memory = std::min(memory, share.memory_mib / node.workers);
    basic.nodes.push_back(std::move(node));
  }
  basic.shares_cpus = cpus < 1;
  basic.cpus_per_worker = options.cpus_per_task.value_or(std::max(1, cpus));
  basic.memory_mib_per_worker = memory;
  if (basic.cpus_per_worker < 1 || basic.cpus_per_worker > std::max(1, cpus))
    return Error(fmt::format("--cpus-per-task={}: the job has {} CPUs for {} workers",
                             basic.cpus_per_worker, all_cpus, basic.workers));
  return basic;
}

}  // namespace swell::launcher
