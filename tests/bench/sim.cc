// SPDX-License-Identifier: GPL-2.0-or-later
// Runs one policy over 24 hours of a cluster of 1,024 GPUs on one core, and measures the time of
// decisions and of the whole simulation. Arguments: the policy (marginal-benefit), a trace as swell
// sim reads it (none: generated jobs at a load of 0.8), NODESxGPUS-TYPE. Last line: JSON.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>

#include "core/cluster/presets.h"
#include "sim/experiment.h"

using namespace swell;

namespace {

/// Returns this program's processor time, so that other programs on a shared machine do not count.
double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

int fail(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  sim::Experiment experiment;
  experiment.policies = {argc > 1 ? argv[1] : "marginal-benefit"};
  auto cluster = cluster::preset(argc > 3 ? argv[3] : "128x8-h100");
  if (!cluster) return fail(cluster.error());
  experiment.cluster = std::make_shared<cluster::Cluster>(std::move(*cluster));
  experiment.generator.hours = 24;
  experiment.generator.jobs_per_hour =
      0.0625 * experiment.cluster->gpu_count();  // same as for the sampled Philly trace
  if (argc > 2) {
    std::ifstream in(argv[2]);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    auto trace = sim::trace_from_csv(text);
    if (!trace) return fail(trace.error().while_doing(argv[2]));
    experiment.trace = std::move(trace->jobs);
  }
  const double begin = cpu_s();
  const auto results = sim::run(experiment);
  if (!results) return fail(results.error());
  const double took = cpu_s() - begin;
  const sim::Metrics& one = results->metrics.front();
  const sim::Outcome& outcome = results->outcomes.front().front();
  std::printf("%s: %d jobs on %d GPUs, %ld events, %d decisions, %d refused\n",
              experiment.policies.front().c_str(), results->jobs, outcome.gpus, outcome.events,
              one.decisions, outcome.refused);
  std::printf(
      "{\"policy\":\"%s\",\"gpus\":%d,\"jobs\":%d,\"decisions\":%d,\"decision_s\":{\"p50\":%.6f,\"p90\":%.6f,\"p99\":%.6f,\"max\":%.6f},"
      "\"cpu_s\":%.2f,\"wall_s\":%.2f,\"avg_jct_s\":%.1f}\n",
      experiment.policies.front().c_str(), outcome.gpus, results->jobs, one.decisions,
      one.decision_p50_s, one.decision_p90_s, one.decision_p99_s, one.decision_max_s, took,
      results->wall_s, one.avg_jct_s.mean);
  return 0;
}
