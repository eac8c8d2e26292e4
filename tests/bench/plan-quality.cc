// SPDX-License-Identifier: GPL-2.0-or-later
// Measures the quality of the incremental planner's plans: against the optimum on generated small
// cases, and against an asymmetric search with a time budget on larger ones. All use one
// performance model, the one that the planner knows. Last line: JSON, 1.0 = equal.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/planner/exhaustive.h"
#include "core/planner/incremental.h"
#include "core/planner/metis.h"
#include "support/cases.h"

using namespace swell;
using Clock = std::chrono::steady_clock;

namespace {

struct Ratio {
  double sum = 0, min = 1e9;
  int count = 0;
  void add(double ratio) {
    sum += ratio;
    min = std::min(min, ratio);
    ++count;
  }
  double mean() const { return count > 0 ? sum / count : 0; }
};

planner::Budget seconds_from_now(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  return {[end] { return Clock::now() >= end; }};
}

/// The planner as policies run it, with its maximum effort, or only Suika's Algorithm 1.
enum class Effort { as_run, all, paper } effort = Effort::as_run;

planner::ScaleTable incremental(const planner::Problem& problem) {
  planner::Incremental::Options options;
  if (effort == Effort::as_run) options.fresh_gpus = 16;
  if (effort == Effort::paper)
    options.fresh = options.carry_idle = false, options.refine_rounds = 0;
  options.max_free = static_cast<int>(problem.free.size());
  return planner::Incremental(options).solve(problem, {});
}

double best(const planner::ScaleTable& table) { return table.rows.back().throughput; }

/// Prints one line for each case: the optimum, the incremental planner, the symmetric one.
void against_exhaustive(int cases, unsigned first_seed, bool verbose, Ratio& all,
                        Ratio& symmetric) {
  std::printf("%-5s %-5s %-6s %-7s %-10s %-10s %-8s %-8s\n", "case", "nodes", "start", "gpus",
              "optimum", "ours", "ratio", "symmetric");
  for (unsigned seed = first_seed; all.count < cases; ++seed) {
    support::CaseGenerator generate(seed);
    const int nodes = generate.between(1, 3), gpus = generate.between(std::max(4, 2 * nodes), 12);
    const auto made = generate.make(nodes, gpus, 1, gpus / 2);
    if (!made || made->problem().free.empty()) continue;
    const auto problem = made->problem();
    planner::Exhaustive::Options last;
    last.last_only = true;
    const auto optimal = planner::Exhaustive(last).solve(problem, {});
    const double optimum = best(optimal);
    const auto table = incremental(problem);
    const double ratio = best(table) / optimum,
                 plain = best(planner::Symmetric().solve(problem, {})) / optimum;
    all.add(ratio);
    symmetric.add(plain);
    if (verbose || ratio < 0.95)
      std::printf("%-5u %-5d %-6d %-7d %-10.4f %-10.4f %-8.4f %-8.4f\n", seed, nodes,
                  made->start.gpu_count(), gpus, optimum, best(table), ratio, plain);
    if (verbose && ratio < 0.97) {
      const auto name = [&](const planner::ScaleTable& t) {
        return plan::name_all(t.rows.back().layout, *made->cluster);
      };
      std::printf("  optimum: %s\n  ours:    %s\n", name(optimal).to_json().dump().c_str(),
                  name(table).to_json().dump().c_str());
    }
    if (ratio > 1 + 1e-9)
      std::printf("case %u: better than the optimum, so the optimum is wrong\n", seed);
  }
}

struct Large {
  const char* model;
  const char* cluster;
  int pp, dp, tp;  ///< degrees of the initial plan
  int to;          ///< total number of GPUs
};

/// Cases of 16 to 64 GPUs: real models, one and two GPU types.
void against_metis(double budget, Ratio& all) {
  const Large cases[] = {
      {"llama2-13b", "8x8-h100", 1, 4, 4, 24}, {"llama2-13b", "8x8-h100", 1, 4, 4, 32},
      {"llama2-13b", "8x8-h100", 1, 4, 4, 40}, {"llama2-13b", "8x8-h100", 1, 4, 4, 48},
      {"llama2-13b", "8x8-h100", 1, 4, 4, 64}, {"gpt2-15b", "8x8-h100", 1, 4, 4, 36},
      {"llama2-7b", "mixed", 1, 4, 2, 32},     {"llama2-13b", "mixed", 1, 4, 4, 44},
      {"qwen2-7b", "4x4-a100", 1, 4, 2, 16}};
  std::printf("\n%-12s %-9s %-5s %-10s %-10s %-8s %s\n", "model", "cluster", "gpus", "metis",
              "ours", "ratio", "our plan");
  for (const Large& one : cases) {
    const auto entry = models::find_model(one.model).value();
    const bool mixed = std::strcmp(one.cluster, "mixed") == 0;
    std::vector<cluster::Node> nodes;
    for (int n = 0; n < 8; ++n)
      nodes.push_back({"n" + std::to_string(n + 1), n / 4, std::vector<int>(8, n % 2), 200e9});
    const auto cluster =
        mixed ? cluster::Cluster::make(
                    "mixed", {*cluster::find_gpu_type("h100"), *cluster::find_gpu_type("a100")},
                    nodes)
                    .value()
              : cluster::preset(one.cluster).value();
    const auto k = perf::expected_coefficients(entry.model, cluster);
    const perf::PerformanceModel perf(entry.model, cluster, k);
    plan::Layout start{entry.micro_batches, {}};
    planner::Islands gpus;
    for (const auto& gpu : planner::unused(start, cluster))
      planner::add_to(gpus, gpu.node, cluster.type_of(gpu), plan::GpuMask{1} << gpu.index);
    planner::Islands first;
    for (int need = one.pp * one.dp * one.tp; planner::Island & island : gpus) {
      for (; need > 0 && island.gpus != 0; --need) {
        planner::add_to(first, island.node, island.type, island.gpus & (~island.gpus + 1));
        island.gpus &= island.gpus - 1;
      }
    }
    planner::Evaluator evaluator(perf, entry.model.global_batch / entry.micro_batches);
    start = planner::best_symmetric(evaluator, first, entry.micro_batches,
                                    {{one.tp}, evaluator.micro_batch()}, {one.pp, one.tp})
                .layout;
    planner::Problem problem{perf, start, planner::unused(start, cluster)};
    problem.free = planner::affinity_order(start, problem.free, cluster);
    problem.free.resize(static_cast<std::size_t>(one.to - start.gpu_count()));
    planner::Metis::Options last;
    last.last_only = true;
    const double rival = best(planner::Metis(last).solve(problem, seconds_from_now(budget)));
    const auto ours = incremental(problem);
    all.add(best(ours) / rival);
    std::printf("%-12s %-9s %-5d %-10.4f %-10.4f %-8.4f %s\n", one.model, one.cluster, one.to,
                rival, best(ours), best(ours) / rival,
                plan::name_all(ours.rows.back().layout, cluster).summary().c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int cases = 300;
  unsigned first_seed = 1;
  double metis_seconds = 60;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--verbose") == 0) verbose = true;
    if (std::strcmp(argv[i], "--effort") == 0 && i + 1 < argc) {
      const std::string given = argv[++i];
      effort = given == "all" ? Effort::all : given == "paper" ? Effort::paper : Effort::as_run;
    }
    if (std::strcmp(argv[i], "--cases") == 0 && i + 1 < argc) cases = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--first-seed") == 0 && i + 1 < argc)
      first_seed = static_cast<unsigned>(std::atol(argv[++i]));
    if (std::strcmp(argv[i], "--metis-seconds") == 0 && i + 1 < argc)
      metis_seconds = std::atof(argv[++i]);
  }
  std::printf("effort: %s\n", effort == Effort::all     ? "all"
                              : effort == Effort::paper ? "the paper's algorithm"
                                                        : "as policies run it");
  Ratio optimum, symmetric, metis;
  const auto begin = Clock::now();
  against_exhaustive(cases, first_seed, verbose, optimum, symmetric);
  std::printf(
      "%d cases in %.1f s: ours %.4f of the optimum on average, %.4f at least; symmetric %.4f, %.4f\n",
      optimum.count, std::chrono::duration<double>(Clock::now() - begin).count(), optimum.mean(),
      optimum.min, symmetric.mean(), symmetric.min);
  against_metis(metis_seconds, metis);
  std::printf(
      "{\"cases\":%d,\"mean_vs_exhaustive\":%.4f,\"min_vs_exhaustive\":%.4f,\"mean_vs_metis\":%.4f,\"min_vs_metis\":%.4f}\n",
      optimum.count, optimum.mean(), optimum.min, metis.mean(), metis.min);
  return 0;
}
