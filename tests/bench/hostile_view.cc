// SPDX-License-Identifier: GPL-2.0-or-later
// What one round's view costs where users write what they like: 10,000 nodes, 100,000 pending tasks
// with long constraints and node lists, all different. Says as JSON how long the slowest view took,
// and how much memory records and view hold beyond the texts that Slurm itself keeps.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <malloc.h>
#include <random>
#include <string>

#include "controller/view_builder.h"

namespace {

using namespace swell;
using namespace swell::controller;

constexpr int kNodes = 10'000, kTasks = 100'000, kFeatures = 200;

/// Memory that is in use, in MiB.
double used_mib() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20);
}

slurm::Snapshot idle_nodes() {
  slurm::Snapshot snapshot;
  snapshot.taken = 1'000'000;
  slurm::PartitionRecord partition;
  partition.name = "train";
  partition.up = true;
  for (int i = 1; i <= kNodes; ++i) {
    slurm::NodeRecord node;
    node.name = fmt::format("node{}", i);
    node.usable = true;
    node.gpus = {{8, "h100", ""}};
    node.cpus = 64;
    node.memory_mib = 512'000;
    for (int f = 0; f < 8; ++f)
      node.features.push_back(fmt::format("f{}", (i + 25 * f) % kFeatures));
    partition.nodes.push_back(node.name);
    snapshot.nodes.push_back(std::move(node));
  }
  snapshot.partitions.push_back(std::move(partition));
  return snapshot;
}

/// Users' texts, different each time: as long as Slurm takes them.
class Texts {
 public:
  std::string constraint() {
    std::string text;
    const char* const sign = random_() % 2 == 0 ? "&" : "|";
    while (text.size() < 1000)
      text += fmt::format("{}f{}", text.empty() ? "" : sign, random_() % kFeatures);
    return text;
  }
  /// Every other node, so that no range is short.
  std::string nodes() {
    std::string text = "node[";
    for (std::size_t n = 1 + random_() % 2; n <= kNodes; n += 2 + random_() % 2)
      text += fmt::format("{}{}", text.back() == '[' ? "" : ",", n);
    return text + "]";
  }

 private:
  std::minstd_rand random_{1};
};

slurm::JobRecord& add(slurm::Snapshot& snapshot, int tasks) {
  slurm::JobRecord job;
  job.id = static_cast<slurm::JobId>(1000 + snapshot.jobs.size());
  job.partition = "train";
  job.phase = slurm::JobPhase::pending;
  job.waiting = slurm::Waiting::for_resources;
  job.priority = 100;
  job.gpus_per_node = {8, "h100", ""};
  job.pending_tasks = tasks;
  return snapshot.jobs.emplace_back(std::move(job));
}

struct Cost {
  double seconds = 0, mib = 0;
};

Cost of_view(const slurm::Snapshot& snapshot) {
  const double before = used_mib();
  const std::clock_t begin = std::clock();  // of the processor: others may use the machine
  const policy::ClusterView view = build_view(snapshot, {}, {}, Config{}, 100);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double mib = used_mib() - before;
  std::printf("  %zu demands: %.3f s, %.1f MiB\n", view.queue.size(), seconds, mib);
  return {seconds, mib};
}

}  // namespace

int main() {
  const slurm::Snapshot idle = idle_nodes();
  Cost worst;
  const auto measure = [&](const char* what, int records, int tasks, auto&& write) {
    Texts texts;
    slurm::Snapshot snapshot = idle;
    snapshot.jobs.reserve(static_cast<std::size_t>(records));
    for (int i = 0; i < records; ++i) write(add(snapshot, tasks), texts);
    std::printf("%s\n", what);
    const Cost cost = of_view(snapshot);
    worst = {std::max(worst.seconds, cost.seconds), std::max(worst.mib, cost.mib)};
  };
  measure("ordinary tasks", kTasks, 1, [](slurm::JobRecord&, Texts&) {});
  measure("arrays with one feature 511 times", kTasks / 100, 100,
          [](slurm::JobRecord& job, Texts&) {
            std::string text = "f1";
            while (text.size() < 1021) text += "&f1";
            job.features = text;
          });
  measure("tasks with constraints, all different", kTasks, 1,
          [](slurm::JobRecord& job, Texts& texts) { job.features = texts.constraint(); });
  // 100,000 such lists would be 2 GB in slurmctld: it is given 2,000, more than a view reads.
  measure("tasks with --exclude of half the nodes, all different", 2000, 1,
          [](slurm::JobRecord& job, Texts& texts) { job.excluded_nodes = texts.nodes(); });
  measure("tasks with --nodelist of half the nodes and constraints", 2000, 1,
          [](slurm::JobRecord& job, Texts& texts) {
            job.required_nodes = texts.nodes();
            job.features = texts.constraint();
          });
  measure("tasks that ask for a node that is not there, and another one", kTasks, 1,
          [n = 0](slurm::JobRecord& job, Texts&) mutable {
            job.required_nodes = fmt::format("node{},gone{}", ++n % kNodes + 1, n);
          });
  std::printf("{\"nodes\": %d, \"tasks\": %d, \"max_view_s\": %.3f, \"max_view_mib\": %.1f}\n",
              kNodes, kTasks, worst.seconds, worst.mib);
}
