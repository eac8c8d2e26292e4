// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/basic_workers.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include "core/count_of.h"
#include "core/saturating.h"

namespace swell::launcher {

namespace {

using Shares = std::vector<NodeShare>;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

int gpus_of(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0,
                         [](int sum, const NodeShare& share) { return sum + share.gpus; });
}

void no_growth(BasicWorkers& basic, std::string why) {
  if (basic.no_growth.empty()) basic.no_growth = std::move(why);
}

/// Returns the nodes of the job that -w, -x, -r and -N leave.
Result<Shares> chosen_nodes(const Options& options, const Shares& all) {
  for (const std::string& name : options.node_list)
    if (std::none_of(all.begin(), all.end(),
                     [&](const NodeShare& one) { return one.node == name; }))
      return Error(fmt::format("--nodelist: {} is not a node of the job", name));
  Shares chosen;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (static_cast<int>(i) >= options.relative && !contains(options.excluded, all[i].node))
      chosen.push_back(all[i]);
  const auto [least, most] = options.nodes.value_or(std::pair{1, std::numeric_limits<int>::max()});
  if (static_cast<int>(chosen.size()) < least)
    return Error(fmt::format("asked for {}, and {} of the job's {} are left",
                             count_of(least, "node"), chosen.size(), all.size()));
  // If -N allows fewer nodes, those of -w are kept first; the job's order stays.
  const auto is_named = [&](const NodeShare& one) { return contains(options.node_list, one.node); };
  auto surplus = static_cast<std::ptrdiff_t>(chosen.size()) - most;
  for (const bool named : {false, true})
    for (auto at = chosen.end(); at != chosen.begin() && surplus > 0;)
      if (--at; is_named(*at) == named) {
        at = chosen.erase(at);
        --surplus;
      }
  return chosen;
}

/// Reduces the node's GPUs to `there`; Slurm chooses which of them.
void take_gpus(NodeShare& share, int there) {
  if (share.gpus == there) return;
  share.gpus = there;
  share.gpu_list.clear();
  share.gpu_types.clear();
}

/// Reduces `shares` to the GPUs that --gpus-per-node and --gpus leave.
Result<void> choose_gpus(const Options& options, Shares& shares) {
  for (NodeShare& share : shares) {
    if (!options.gpus_per_node || options.no_gpus) break;
    if (*options.gpus_per_node > share.gpus)
      return Error(fmt::format("asked for {} a node; the job has {} on {}",
                               count_of(*options.gpus_per_node, "GPU"), share.gpus, share.node));
    take_gpus(share, *options.gpus_per_node);
  }
  if (!options.gpus) return {};
  int left = *options.gpus;
  if (left > gpus_of(shares))
    return Error(fmt::format("--gpus={}: the job has {}", left, count_of(gpus_of(shares), "GPU")));
  for (NodeShare& share : shares) {
    take_gpus(share, std::min(left, share.gpus));
    left -= share.gpus;
  }
  std::erase_if(shares, [](const NodeShare& share) { return share.gpus == 0; });
  return {};
}

/// Returns each node's number of workers if they share GPUs unevenly, as srun lays out tasks.
std::vector<int> spread(const Options& options, Shares& shares, int workers) {
  if (workers < static_cast<int>(shares.size())) shares.resize(static_cast<std::size_t>(workers));
  const int nodes = static_cast<int>(shares.size());
  std::vector<int> counts;
  for (int node = 0; node < nodes; ++node)
    counts.push_back(options.ntasks_per_node && !options.ntasks
                         ? *options.ntasks_per_node
                         : workers / nodes + (node < workers % nodes ? 1 : 0));
  return counts;
}

}  // namespace

Result<BasicWorkers> basic_workers(JobId job, const Options& options, const Shares& all) {
  BasicWorkers basic;
  basic.no_growth = options.no_growth;
  basic.gpus_of_job = gpus_of(all);
  if (basic.gpus_of_job == 0) return Error("the job has no GPUs");
  auto chosen = chosen_nodes(options, all);
  if (!chosen) return chosen.error();
  Shares shares = std::move(*chosen);
  if (shares.size() < all.size())
    no_growth(basic, fmt::format("swellrun uses {} of the job's {}", shares.size(),
                                 count_of(all.size(), "node")));
  if (const Result<void> taken = choose_gpus(options, shares); !taken) return taken.error();
  basic.gpus = gpus_of(shares);
  if (basic.gpus == 0) return Error("none of the job's GPUs is left by its options");

  std::optional<int> workers = options.ntasks;
  if (!workers && options.ntasks_per_node)
    workers = saturated_int(
        saturating_product(*options.ntasks_per_node, static_cast<std::int64_t>(shares.size())));
  basic.gpus_per_worker = options.gpus_per_task.value_or(1);
  if (workers && options.gpus_per_task) {
    const std::int64_t gpus = std::int64_t{*workers} * *options.gpus_per_task;
    if (gpus > basic.gpus)
      return Error(
          fmt::format("{} with {} each are more than the job's {}", count_of(*workers, "worker"),
                      count_of(*options.gpus_per_task, "GPU"), count_of(basic.gpus, "GPU")));
  } else if (workers) {
    basic.gpus_per_worker = std::max(1, basic.gpus / *workers);
  }
  const bool even = (!workers || std::int64_t{*workers} * basic.gpus_per_worker == basic.gpus) &&
                    std::all_of(shares.begin(), shares.end(), [&](const NodeShare& share) {
                      return share.gpus > 0 && share.gpus % basic.gpus_per_worker == 0;
                    });
  if (!even && !workers) workers = basic.gpus / basic.gpus_per_worker;
  int all_cpus = 0;
  for (const NodeShare& share : shares) all_cpus += share.cpus;
  if (!even && *workers > std::max(all_cpus, basic.gpus))
    return Error(fmt::format("{} are more than the job's {}", count_of(*workers, "worker"),
                             count_of(all_cpus, "CPU")));
  if (!even && *workers == 0)
    return Error(fmt::format("workers of {} do not fit the job's {}",
                             count_of(basic.gpus_per_worker, "GPU"), count_of(basic.gpus, "GPU")));
  std::vector<int> counts;
  if (even)
    for (const NodeShare& share : shares) counts.push_back(share.gpus / basic.gpus_per_worker);
  else counts = spread(options, shares, *workers);
  basic.gpus = gpus_of(shares);
  if (!even)
    no_growth(basic, fmt::format("{} do not share {} evenly", count_of(*workers, "worker"),
                                 count_of(basic.gpus, "GPU")));
  if (basic.gpus < basic.gpus_of_job)
    no_growth(basic, fmt::format("swellrun uses {} of the job's {}", basic.gpus,
                                 count_of(basic.gpus_of_job, "GPU")));

  int cpus = std::numeric_limits<int>::max();
  std::int64_t memory = std::numeric_limits<std::int64_t>::max();
  for (const NodeShare& share : shares) {
    WorkerNode node;
    node.id = static_cast<int>(basic.nodes.size());
    node.job = job;
    node.name = share.node;
    node.cpus = share.cpus;
    node.gpus = share.gpus;
    node.gpu_list = share.gpu_list;
    node.gpu_types = share.gpu_types;
    node.workers = counts[basic.nodes.size()];
    basic.workers += node.workers;
    cpus = std::min(cpus, share.cpus / node.workers);
    memory = std::min(memory, share.memory_mib / node.workers);
    basic.nodes.push_back(std::move(node));
  }
  basic.shares_cpus = cpus < 1;
  basic.memory_mib_per_worker = memory;
  const std::optional<int> asked = options.cpus_per_task ? options.cpus_per_task
                                   : options.cpus_per_gpu
                                       ? std::optional<int>(saturated_int(saturating_product(
                                             *options.cpus_per_gpu, basic.gpus_per_worker)))
                                       : std::nullopt;
  basic.cpus_per_worker = asked.value_or(std::max(1, cpus));
  if (basic.cpus_per_worker < 1 || basic.cpus_per_worker > std::max(1, cpus))
    return Error(fmt::format("asked for {} a worker: the job has {} for {}",
                             count_of(basic.cpus_per_worker, "CPU"), count_of(all_cpus, "CPU"),
                             count_of(basic.workers, "worker")));
  return basic;
}

}  // namespace swell::launcher
