// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how long one decision takes with 1,024 GPUs: jobs of Suika's Table 1 with their own
// profiles fill most of 128 nodes; then one job at a time ends or starts. usage: policy [NAME
// [HELPERS]]. Last line: JSON: the deciding thread's processor time, the wall clock time (valid
// with helpers, which are further threads, only on an otherwise idle machine), and a checksum of
// all decisions.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "core/helpers.h"
#include "core/models/catalogue.h"
#include "core/policy/rivals/registry.h"
#include "support/views.h"

using namespace swell;
using namespace support;

namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// Starts a job of a random model on its default number of GPUs; does nothing if no node has them.
void start_one(ClusterView& view, JobId id, std::mt19937& random) {
  const char* names[] = {"gpt2-350m", "gpt2-1.3b", "qwen2-1.5b", "llama2-7b", "qwen2-7b"};
  const auto entry = models::find_model(names[random() % 5]).value();
  const int gpus = entry.dp * entry.tp;
  for (NodeIndex node = 0; node < static_cast<NodeIndex>(view.nodes.size()); ++node) {
    if (view.nodes[static_cast<std::size_t>(node)].free.gpus < gpus) continue;
    ElasticJobView& job = add_job(view, id, node, gpus);
    job.max_gpus = 1024;
    job.started_s = view.now_s;
    auto coefficients = perf::expected_coefficients(entry.model, *view.machines);
    for (auto& type : coefficients.types)
      type.comp_s *= std::uniform_real_distribution<double>(0.9, 1.1)(random);
    profile(job, entry.model, coefficients, entry.micro_batches);
    return;
  }
}

void end_one(ClusterView& view, std::size_t index) {
  const ElasticJobView& job = view.jobs[index];
  NodeView& node = view.nodes[static_cast<std::size_t>(job.basic_nodes[0])];
  node.free_gpus |= job.basic_gpu_masks[0];
  node.free += job.per_worker * job.basic_gpus;
  for (const CompanionView& companion : job.companions) {
    NodeView& lender = view.nodes[static_cast<std::size_t>(companion.node)];
    lender.free_gpus |= companion.gpus;
    lender.free += companion.held;
  }
  view.jobs.erase(view.jobs.begin() + static_cast<std::ptrdiff_t>(index));
}

/// Applies all grants and reclaims as if they were carried out at once.
void apply(ClusterView& view, const Decisions& decisions, JobId& next) {
  for (const Reclaim& reclaim : decisions.reclaims)
    for (ElasticJobView& job : view.jobs)
      std::erase_if(job.companions, [&](const CompanionView& companion) {
        if (companion.id != reclaim.companion) return false;
        NodeView& node = view.nodes[static_cast<std::size_t>(companion.node)];
        node.free_gpus |= companion.gpus;
        node.free += companion.held;
        return true;
      });
  for (const NewPlan& plan : decisions.plans)
    for (ElasticJobView& job : view.jobs) {
      if (job.id != plan.job) continue;
      auto training = std::make_shared<Training>(*job.training);
      training->current = plan.layout;
      job.training = training;
      for (const Grant& grant : decisions.grants) {
        if (grant.job != job.id) continue;
        plan::GpuMask wanted = 0;
        for (const auto& stage : plan.layout.stages)
          for (const auto& group : stage.groups)
            if (group.node == grant.node) wanted |= group.gpus;
        NodeView& node = view.nodes[static_cast<std::size_t>(grant.node)];
        wanted &= node.free_gpus;
        while (std::popcount(wanted) < grant.lent.gpus)
          wanted |= (node.free_gpus & ~wanted) & (~(node.free_gpus & ~wanted) + 1);
        node.free_gpus &= ~wanted;
        node.free -= grant.lent;
        job.companions.push_back({next++, grant.node, grant.lent, wanted, false});
      }
    }
}

/// Adds decisions to a checksum.
std::uint64_t add_to(std::uint64_t sum, const Decisions& decisions) {
  const auto mix = [&](std::uint64_t value) { sum = (sum ^ value) * 0x100000001b3u; };
  for (const Grant& grant : decisions.grants) {
    mix(grant.job);
    mix(static_cast<std::uint64_t>(grant.node) << 32 | static_cast<std::uint64_t>(grant.lent.gpus));
  }
  for (const Reclaim& reclaim : decisions.reclaims) mix(reclaim.companion);
  for (const NewPlan& plan : decisions.plans)
    for (const auto& stage : plan.layout.stages) {
      mix(static_cast<std::uint64_t>(stage.layers) << 32 | static_cast<std::uint64_t>(stage.tp));
      for (const auto& group : stage.groups) mix(group.gpus);
    }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "swell";
  const int helpers = argc > 2 ? std::atoi(argv[2]) : 0;
  policy::PolicyOptions options;
  if (helpers > 0)
    options.executor = std::make_shared<Helpers>(
        helpers, [](std::function<void()> body) { return std::thread(std::move(body)); });
  std::uint64_t sum = 0xcbf29ce484222325u;
  auto made = policy::make_simulated_policy(name, options);
  if (!made) {
    std::fprintf(stderr, "policy: %s\n", made.error().message().c_str());
    return 2;
  }
  std::mt19937 random(1);
  ClusterView view = idle_cluster(128);
  view.machines = std::make_shared<const cluster::Cluster>(cluster::preset("128x8-h100").value());
  JobId next_job = 1, next_companion = 100000;
  for (int i = 0; i < 130; ++i) start_one(view, next_job++, random);
  std::vector<double> seconds, wall;
  for (int event = 0; event < 200; ++event) {
    view.now_s += 30;
    if (event > 0 && event % 2 == 0 && !view.jobs.empty())
      end_one(view, random() % view.jobs.size());
    // The next job to start needs a node with up to 8 idle GPUs, so GPUs are reclaimed for it.
    view.queue.clear();
    if (event % 2 == 1) view.queue.push_back(pending(next_job, 1, 8));
    const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID), since = seconds_of(CLOCK_MONOTONIC);
    const Decisions decisions = (*made)->decide(view);
    seconds.push_back(seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin);
    wall.push_back(seconds_of(CLOCK_MONOTONIC) - since);
    sum = add_to(sum, decisions);
    apply(view, decisions, next_companion);
    if (event % 2 == 1) start_one(view, next_job++, random);
  }
  std::printf("first decision, nothing remembered: %.3f s\n", seconds.front());
  std::sort(seconds.begin(), seconds.end());
  std::sort(wall.begin(), wall.end());
  const auto of = [](const std::vector<double>& all, double share) {
    return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))];
  };
  const auto at = [&](double share) { return of(seconds, share); };
  std::printf(
      "{\"bench\": \"policy\", \"policy\": \"%s\", \"helpers\": %d, \"gpus\": 1024, \"jobs\": %zu, \"p50_s\": %.4f, \"p90_s\": %.4f, "
      "\"p99_s\": %.4f, \"max_s\": %.4f, \"wall_s\": {\"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f}, \"decisions\": \"%016llx\"}\n",
      name, helpers, view.jobs.size(), at(0.5), at(0.9), at(0.99), seconds.back(), of(wall, 0.5),
      of(wall, 0.9), of(wall, 0.99), static_cast<unsigned long long>(sum));
  return 0;
}
