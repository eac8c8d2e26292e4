// SPDX-License-Identifier: GPL-2.0-or-later
// Measures a round of the controller under hostile texts of users: 10,000 nodes, 100,000 pending
// tasks with different long constraints and node lists, and elastic jobs with lent GPUs. Prints as
// JSON the time of the slowest view and of the slowest round, and how much memory they hold in
// addition to the texts that Slurm itself keeps. tests/unit builds it with fewer nodes and tasks,
// and then checks only the memory.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <malloc.h>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "controller/controller.h"
#include "controller/view_builder.h"
#include "unit/controller/fakes.h"

#ifndef SWELL_BENCH_NODES
#define SWELL_BENCH_NODES 10'000
#endif

extern "C" [[gnu::weak]] std::size_t __sanitizer_get_current_allocated_bytes();

namespace {

using namespace swell;
using namespace swell::controller;

constexpr int kNodes = SWELL_BENCH_NODES, kTasks = 10 * kNodes, kFeatures = 200;
constexpr int kElastic = 50;  ///< running jobs that ask to grow
/// Limits of one view and of one round. The program fails above them.
constexpr double kMaxSeconds = 0.5, kMaxMib = 200.0 * kNodes / 10'000;
constexpr bool kJudgesTime = kNodes == 10'000;

/// Returns the memory in use, in MiB.
double used_mib() {
  // AddressSanitizer has its own allocator, which mallinfo2() does not see.
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return static_cast<double>(__sanitizer_get_current_allocated_bytes()) / (1 << 20);
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

/// Makes different texts of users, as long as Slurm accepts.
class Texts {
 public:
  std::string constraint() {
    std::string text;
    const char* const sign = random_() % 2 == 0 ? "&" : "|";
    while (text.size() < 1000)
      text += fmt::format("{}f{}", text.empty() ? "" : sign, random_() % kFeatures);
    return text;
  }
  /// Returns every other node, so that the list has no ranges.
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
  void take(const Cost& other) {
    seconds = std::max(seconds, other.seconds);
    mib = std::max(mib, other.mib);
  }
  bool is_too_much() const { return (kJudgesTime && seconds > kMaxSeconds) || mib > kMaxMib; }
};

Cost of_view(const slurm::Snapshot& snapshot) {
  const double before = used_mib();
  const std::clock_t begin = std::clock();  // processor time: other programs may use the machine
  const policy::ClusterView view = build_view(snapshot, {}, {}, Config{}, 100);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double mib = used_mib() - before;
  std::printf("  %zu demands: %.3f s, %.1f MiB\n", view.queue.size(), seconds, mib);
  return {seconds, mib};
}

/// Hands out its records once without a copy, which would add to the test's own cost.
class OnceSlurm final : public test::FakeSlurm {
 public:
  using FakeSlurm::FakeSlurm;
  Result<std::optional<slurm::Snapshot>> load() override {
    return std::exchange(next, std::nullopt);
  }
  Result<bool> set_admin_comment(JobId, const std::string&) override {
    ++comments_written;
    return true;
  }
  std::optional<slurm::Snapshot> next;
};

slurm::Snapshot with_elastic_jobs(slurm::Snapshot snapshot) {
  test::FakeSlurm slurm(kElastic);
  for (JobId id = 1; id <= kElastic; ++id) slurm.run_elastic(id, fmt::format("node{}", id), 8);
  for (slurm::JobRecord& job : slurm.now.jobs) snapshot.jobs.push_back(std::move(job));
  return snapshot;
}

/// Returns the larger cost of two rounds: one with new records, and one with equal records again.
Cost of_round(const slurm::Snapshot& records) {
  OnceSlurm slurm(0);
  test::FakeServer server;
  GrantBook book;
  Controller::Parts parts;
  parts.config.expansion_qos = "expansion";
  parts.slurm = &slurm;
  parts.server = &server;
  parts.book = &book;
  parts.log = [](const std::string&) {};
  parts.nonce = [n = 0]() mutable { return fmt::format("nonce{}", ++n); };
  Controller controller(std::move(parts));
  Cost worst;
  for (const double now : {100.0, 103.0}) {
    for (JobId id = 1; id <= kElastic; ++id) {
      control::Hello hello;
      hello.job = id;
      hello.workers = 8;
      if (now == 100) server.says(id, hello);
    }
    slurm::Snapshot copy = with_elastic_jobs(records);
    copy.taken += static_cast<std::time_t>(now);
    const double of_records = used_mib();
    slurm.next = std::move(copy);
    const slurm::Snapshot& kept = controller.snapshot();
    const bool is_first = kept.jobs.empty();
    controller.cycle(now);
    // The second round frees the first round's records.
    const double mib = is_first ? used_mib() - of_records : 0;
    worst.take({controller.last_own_s(), mib});
  }
  std::printf("  a round: %.3f s, %.1f MiB kept; %zu offers, %d comments\n", worst.seconds,
              worst.mib, server.count<control::Grow>(), slurm.comments_written);
  if (slurm.comments_written < kElastic || server.count<control::Grow>() < kElastic) {
    std::printf(
        "the round did not offer GPUs to each job and write its comment: it measures nothing\n");
    worst.seconds = worst.mib = 1e9;
  }
  return worst;
}

/// Measures time twice and keeps the shorter one, since other programs may use the machine.
template <typename Measure>
Cost quicker_of_two(Measure measure) {
  if (!kJudgesTime) return measure();
  const Cost one = measure(), other = measure();
  return {std::min(one.seconds, other.seconds), std::max(one.mib, other.mib)};
}

}  // namespace

int main() {
  const slurm::Snapshot idle = idle_nodes();
  Cost view, round;
  const auto measure = [&](const char* what, int records, int tasks, auto&& write) {
    Texts texts;
    slurm::Snapshot snapshot = idle;
    snapshot.jobs.reserve(static_cast<std::size_t>(records));
    for (int i = 0; i < records; ++i) write(add(snapshot, tasks), texts);
    std::printf("%s\n", what);
    view.take(quicker_of_two([&] { return of_view(snapshot); }));
    round.take(quicker_of_two([&] { return of_round(snapshot); }));
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
  // 100,000 such lists would be 2 GB in slurmctld: use 2,000, which is more than a view reads.
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
  std::printf(
      "{\"nodes\": %d, \"tasks\": %d, \"max_view_s\": %.3f, \"max_view_mib\": %.1f, "
      "\"max_round_s\": %.3f, \"max_round_mib\": %.1f}\n",
      kNodes, kTasks, view.seconds, view.mib, round.seconds, round.mib);
  return view.is_too_much() || round.is_too_much() ? 1 : 0;
}
