// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how long Arena's cells take to plan, and how good their proxies are. The optimum of a
// cell is the fastest plan of all partitions, powers of two of GPUs and degrees *under the judge*,
// which the planner never uses. Last line: JSON.
//
//   grid [--cases N] [--seed S] [--time-only] [--verbose]
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "core/cluster/presets.h"
#include "core/models/catalogue.h"
#include "core/perf/peak_memory.h"
#include "core/planner/affinity.h"
#include "core/planner/grid.h"
#include "core/planner/incremental.h"
#include "core/planner/plan_search.h"
#include "sim/judge/compute.h"
#include "sim/judge/judge.h"

using namespace swell;
using namespace swell::planner;
namespace judge = sim::judge;

namespace {

// Cells whose optimum needs more judged plans are left out, and counted.
constexpr long kMostJudged = 30000;
constexpr double kSame = 1.001, kNear = 1.05;

double cpu_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
double memory_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

Islands first_gpus(const cluster::Cluster& cluster, int number) {
  Islands gpus;
  for (const auto& gpu : unused({}, cluster))
    if (number-- > 0) add_to(gpus, gpu.node, 0, plan::GpuMask{1} << gpu.index);
  return gpus;
}

/// A stage that the search may choose.
struct Chosen {
  int layers = 0, gpus = 0, tp = 0;
};

/// Searches the fastest plan of one cell under the judge: depth first, with a lower bound from the
/// judge's own times, which ignores communication and optimizer.
class Optimum {
 public:
  Optimum(const perf::PerformanceModel& perf, const judge::Hardware& hardware, const Grid& grid,
          const Islands& gpus, int micro_batches, int stages)
      : perf_(perf),
        memory_(perf),
        hardware_(hardware),
        grid_(grid),
        gpus_(gpus),
        micro_batches_(micro_batches),
        micro_batch_(perf.model().global_batch / micro_batches),
        stages_(stages),
        degrees_(degrees_for(perf.model().heads, micro_batch_)) {}

  double seconds(const plan::Layout& layout) {
    ++judged_;
    return judge::execute(layout, perf_.cluster(), hardware_).seconds;
  }
  /// Searches plans below `best` seconds. Returns the optimum, or `best` if there is none.
  double search(double best) {
    best_ = best;
    chosen_.clear();
    add(0, count(gpus_), 0, 0);
    return best_;
  }
  bool complete() const { return judged_ <= kMostJudged; }
  long judged() const { return judged_; }

 private:
  /// Returns the seconds of both passes of a stage for one micro-batch, without communication.
  double passes_s(int i, const Chosen& one) {
    const int dp = one.gpus / one.tp, batch = (micro_batch_ + dp - 1) / dp;
    const bool last = i == stages_ - 1;
    auto [found, is_new] = known_.try_emplace({one.layers, batch, one.tp, last}, 0);
    if (is_new) {
      const judge::Device device{perf_.cluster().type(gpus_[0].type), one.tp, 1};
      const auto layer = judge::layer_passes(hardware_.model, hardware_.software, device, batch, 0);
      found->second = one.layers * (layer.forward_s + layer.backward_s);
      if (last) {
        const auto head = judge::head_passes(hardware_.model, hardware_.software, device, batch);
        found->second += head.forward_s + head.backward_s;
      }
    }
    return found->second;
  }

  void add(std::size_t first, int gpus_left, double sum, double slowest) {
    const int i = static_cast<int>(chosen_.size()), after = stages_ - 1 - i;
    const auto& clusters = grid_.clusters();
    if (after < 0) {
      judge_chosen();
      return;
    }
    int layers = 0;
    for (std::size_t end = first + 1; end + static_cast<std::size_t>(after) <= clusters.size();
         ++end) {
      layers += clusters[end - 1];
      if (after == 0 && end != clusters.size()) continue;
      for (int gpus = 1; gpus + after <= gpus_left; gpus *= 2) {
        if (after == 0 && gpus != gpus_left) continue;
        for (const int tp : degrees_.tp) {
          if (tp > gpus || gpus / tp > degrees_.max_dp || !complete()) continue;
          const Chosen one{layers, gpus, tp};
          const int dp = gpus / tp;
          const double peak = memory_
                                  .peak(i, stages_, micro_batches_, layers, tp,
                                        (micro_batch_ + dp - 1) / dp, gpus_[0].type, dp)
                                  .total();
          if (peak > perf_.cluster().type(gpus_[0].type).memory_bytes) continue;
          const double here = passes_s(i, one);
          const double bound = (micro_batches_ - 1) * std::max(slowest, here) + sum + here;
          if (bound >= best_) continue;
          chosen_.push_back(one);
          add(end, gpus_left - gpus, sum + here, std::max(slowest, here));
          chosen_.pop_back();
        }
      }
    }
  }

  void judge_chosen() {
    plan::Layout layout{micro_batches_, {}};
    layout.stages.resize(chosen_.size());
    std::vector<std::size_t> order(chosen_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return chosen_[a].gpus > chosen_[b].gpus;
    });
    Islands left = gpus_;
    for (const std::size_t i : order) {
      plan::StageLayout& stage = layout.stages[i];
      stage.layers = chosen_[i].layers;
      stage.tp = chosen_[i].tp;
      const int dp = chosen_[i].gpus / stage.tp;
      if (take_groups(stage, left, stage.tp, dp) < dp) return;
      for (int j = 0; j < dp; ++j)
        stage.groups[static_cast<std::size_t>(j)].local_batch =
            micro_batch_ / dp + (j < micro_batch_ % dp ? 1 : 0);
    }
    best_ = std::min(best_, seconds(layout));
  }

  const perf::PerformanceModel& perf_;
  perf::MemoryModel memory_;
  const judge::Hardware& hardware_;
  const Grid& grid_;
  const Islands& gpus_;
  int micro_batches_, micro_batch_, stages_;
  Degrees degrees_;
  double best_ = 0;
  long judged_ = 0;
  std::vector<Chosen> chosen_;
  std::map<std::tuple<int, int, int, bool>, double> known_;
};

struct Mean {
  double sum = 0, least = 1e9;
  int count = 0;
  void add(double value) {
    sum += value;
    least = std::min(least, value);
    ++count;
  }
  double mean() const { return count > 0 ? sum / count : 0; }
};

struct Quality {
  Mean proxy, frontier, row, dp;  ///< throughput divided by the optimum's, by case
  Mean by_gpus[3];                ///< the best proxy on 4, 8 and 16 GPUs
  int cells = 0, same = 0, near = 0, unfinished = 0;
  int few = 0, same_few = 0;  ///< cells with at most four stages
  /// Throughput of proxies divided by their cell's optimum, if they differ.
  Mean gap;
  std::vector<std::pair<double, std::string>> worst;
  std::set<std::string> drawn;
};

/// Adds one drawn case. Returns false if no plan fits, or the case was drawn before.
bool add_case(std::mt19937& random, bool verbose, Quality& quality) {
  static constexpr const char* kModels[] = {
      "bert-base", "bert-large", "bert-760m", "bert-1.3b", "bert-2.6b", "bert-6.7b", "gpt2-350m",
      "gpt2-1.3b", "gpt2-2.6b",  "gpt2-6.7b", "moe-690m",  "moe-1.3b",  "moe-2.4b"};
  static constexpr const char* kClusters[] = {"4x4-a100-40g", "8x2-a40", "8x2-a10", "1x16-v100"};
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  const char* const name = kModels[draw(std::size(kModels))];
  const char* const where = kClusters[draw(std::size(kClusters))];
  const int size = draw(3), number = 4 << size, micro_batches = 4 << draw(3);
  const std::string label = std::string(name) + " on " + std::to_string(number) + " of " + where +
                            ", " + std::to_string(micro_batches) + " micro-batches";
  if (!quality.drawn.insert(label).second) return false;
  const auto entry = models::find_model(name).value();
  const auto cluster = cluster::preset(where).value();
  models::Model model = entry.model;
  model.global_batch = 128;
  auto coefficients = perf::expected_coefficients(model, cluster);
  perf::expect_launches(coefficients, model, cluster);
  const perf::PerformanceModel perf(model, cluster, coefficients);
  const judge::Hardware hardware{model, judge::Software::fused(), {}, {}};
  const Islands gpus = first_gpus(cluster, number);
  const Grid grid(perf, micro_batches);
  const auto cells = grid.cells(gpus, {});
  const CellPlan* best = best_proxy(cells);
  if (best == nullptr) return false;

  double optimum = 1e300, proxy_s = 0;
  for (const CellPlans& cell : cells) {
    if (!cell.has_plan()) continue;
    Optimum search(perf, hardware, grid, gpus, micro_batches, cell.cell.stages);
    const double own = search.seconds(cell.proxy().layout);
    double start = own;
    for (const CellPlan& plan : cell.frontier) start = std::min(start, search.seconds(plan.layout));
    const double found = search.search(start);
    if (&cell.proxy() == best) proxy_s = own;
    optimum = std::min(optimum, found);
    if (!search.complete()) {
      ++quality.unfinished;
      continue;
    }
    ++quality.cells;
    const bool is_few = cell.cell.stages <= 4;
    quality.few += is_few ? 1 : 0;
    quality.same_few += is_few && own <= found * kSame ? 1 : 0;
    quality.near += own <= found * kNear ? 1 : 0;
    if (own <= found * kSame) ++quality.same;
    else quality.gap.add(found / own);
  }
  // Other planners with the same loads.
  GridTable table = grid_table(perf, micro_batches, {1, 2, 4, 8, 16}, {});
  const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                [&](const GridRow& one) { return one.gpus == number; });
  const double row_s = judge::execute(row->layout, cluster, hardware).seconds;
  plan::Layout dp{micro_batches, {{model.layers, 1, {}}}};
  Islands left = gpus;
  const int micro_batch = model.global_batch / micro_batches;
  bool fits = number <= micro_batch && take_groups(dp.stages[0], left, 1, number) == number;
  for (plan::GroupLayout& group : dp.stages[0].groups) group.local_batch = micro_batch / number;
  fits = fits && micro_batch % number == 0 && perf::MemoryModel(perf).fits(dp);
  if (fits) {
    const double dp_s = judge::execute(dp, cluster, hardware).seconds;
    quality.dp.add(optimum / dp_s);
  }
  quality.proxy.add(optimum / proxy_s);
  const double frontier_s = judge::execute(best_plan(cells)->layout, cluster, hardware).seconds;
  quality.frontier.add(optimum / frontier_s);
  quality.by_gpus[size].add(optimum / proxy_s);
  quality.row.add(optimum / row_s);
  quality.worst.emplace_back(optimum / proxy_s, label);
  if (verbose)
    std::printf("%-50s proxy %.3f table %.3f (%s)\n", label.c_str(), optimum / proxy_s,
                optimum / row_s, row->by);
  return true;
}

struct Times {
  double small_s = 0, large_s = 0, more_mb = 0;
};

/// Measures `--grid` with four types, for up to 64 and up to 1,024 GPUs of each.
Times measure() {
  const auto entry = models::find_model("gpt2-2.6b").value();
  const auto run = [&](const char* name) {
    const auto cluster = cluster::preset(name).value();
    const auto coefficients = perf::expected_coefficients(entry.model, cluster);
    const perf::PerformanceModel perf(entry.model, cluster, coefficients);
    const double begin = cpu_s();
    const GridTable table = grid_table(perf, 4, {}, {});
    std::printf("%s: %zu rows, %.3f s\n", name, table.rows.size(), cpu_s() - begin);
    return cpu_s() - begin;
  };
  Times times;
  const double before = memory_mb();
  times.small_s = run("16x4-a100-40g+32x2-a40+32x2-a10+4x16-v100");
  times.large_s = run("256x4-a100-40g+512x2-a40+512x2-a10+64x16-v100");
  times.more_mb = memory_mb() - before;
  return times;
}

/// Savings of pruning (section 3.6), and the share of the best throughput that remains.
struct Pruned {
  Mean fewer;  ///< number of plans without pruning divided by that with pruning, by case
  Mean kept;   ///< throughput with pruning divided by that of all plans, by the performance model
  double all = 0, pruned = 0;  ///< number of plans over all cases
  Mean incremental_fewer, incremental_kept;
};

// Limits of the unpruned search: more clusters or GPUs have too many plans.
constexpr int kSearchedClusters = 8, kSearchedGpus = 8;

bool add_pruned(std::mt19937& random, std::set<std::string>& drawn, Pruned& sum) {
  static constexpr const char* kModels[] = {"bert-large", "bert-1.3b", "bert-2.6b", "gpt2-350m",
                                            "gpt2-1.3b",  "gpt2-2.6b", "gpt2-6.7b", "moe-690m",
                                            "moe-1.3b",   "moe-2.4b"};
  static constexpr const char* kClusters[] = {"2x4-a100-40g", "4x2-a40", "4x2-a10", "1x8-v100"};
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  const char* const name = kModels[draw(std::size(kModels))];
  const char* const where = kClusters[draw(std::size(kClusters))];
  const int micro_batches = 4 << draw(3);
  if (!drawn.insert(std::string(name) + where + std::to_string(micro_batches)).second) return false;
  models::Model model = models::find_model(name).value().model;
  model.global_batch = 128;
  const auto cluster = cluster::preset(where).value();
  auto coefficients = perf::expected_coefficients(model, cluster);
  perf::expect_launches(coefficients, model, cluster);
  const perf::PerformanceModel perf(model, cluster, coefficients);
  const Grid grid(perf, micro_batches, {.clusters = kSearchedClusters});
  const Islands gpus = first_gpus(cluster, kSearchedGpus);
  const auto pruning = pruning_by(grid, grid.cells(gpus, {}));
  if (!pruning) return false;
  const SearchedPlan all = search_plans(perf, micro_batches, grid, gpus, std::nullopt, {}),
                     few = search_plans(perf, micro_batches, grid, gpus, pruning, {});
  sum.fewer.add(static_cast<double>(all.evaluated) / static_cast<double>(few.evaluated));
  sum.kept.add(all.seconds / few.seconds);
  sum.all += static_cast<double>(all.evaluated);
  sum.pruned += static_cast<double>(few.evaluated);
  // A job that grows from the fewest GPUs on which it fits.
  const GridTable table = grid_table(perf, micro_batches, {1, 2, 4}, {}, {});
  for (const GridRow& row : table.rows) {
    if (row.layout.stages.empty()) continue;
    Problem problem{perf, row.layout, {}};
    int left = kSearchedGpus;
    for (const auto& gpu : unused({}, cluster))
      if (left-- > 0 && row.gpus + left < kSearchedGpus) problem.free.push_back(gpu);
    Incremental::Options options;
    options.max_free = static_cast<int>(problem.free.size());
    const ScaleTable usual = Incremental(options).solve(problem, {});
    options.prunes = true;
    const ScaleTable pruned = Incremental(options).solve(problem, {});
    sum.incremental_fewer.add(static_cast<double>(usual.evaluated) /
                              static_cast<double>(pruned.evaluated));
    sum.incremental_kept.add(pruned.rows.back().throughput / usual.rows.back().throughput);
    break;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  int cases = 300, pruned_cases = 60;
  unsigned seed = 1;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--time-only") == 0) cases = pruned_cases = 0;
    if (std::strcmp(argv[i], "--verbose") == 0) verbose = true;
    if (std::strcmp(argv[i], "--cases") == 0 && i + 1 < argc) cases = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
      seed = static_cast<unsigned>(std::atol(argv[++i]));
  }
  const Times times = measure();
  Quality quality;
  std::mt19937 random(seed);
  while (quality.proxy.count < cases) add_case(random, verbose, quality);
  if (cases > 0) {
    std::sort(quality.worst.begin(), quality.worst.end());
    std::printf("\nthe ten worst:\n");
    for (std::size_t i = 0; i < std::min<std::size_t>(10, quality.worst.size()); ++i)
      std::printf("  %.3f  %s\n", quality.worst[i].first, quality.worst[i].second.c_str());
    std::printf("\n%d cases, throughput over the optimum of all cells, under the judge:\n",
                quality.proxy.count);
    const auto line = [](const char* what, const Mean& mean) {
      std::printf("  %-32s %.4f on average, %.4f at least (%d)\n", what, mean.mean(), mean.least,
                  mean.count);
    };
    line("best proxy", quality.proxy);
    line("  on 4 GPUs", quality.by_gpus[0]);
    line("  on 8 GPUs", quality.by_gpus[1]);
    line("  on 16 GPUs", quality.by_gpus[2]);
    line("best plan of all frontiers", quality.frontier);
    line("that or incremental's, any GPUs", quality.row);
    line("data parallel, where it fits", quality.dp);
    const auto percent = [](int part, int whole) { return 100.0 * part / std::max(1, whole); };
    std::printf(
        "%d cells: the proxy is the optimum in %.1f %% (with up to four stages in %.1f %%), within "
        "5 %% of it in %.1f %%; where it is not the optimum, %.4f of it; %d more cells had too many "
        "plans to judge\n",
        quality.cells, percent(quality.same, quality.cells), percent(quality.same_few, quality.few),
        percent(quality.near, quality.cells), quality.gap.mean(), quality.unfinished);
  }
  Pruned pruned;
  std::set<std::string> drawn;
  while (pruned.fewer.count < std::min(cases, pruned_cases)) add_pruned(random, drawn, pruned);
  if (pruned.fewer.count > 0)
    std::printf(
        "pruning, %d cases of %d GPUs and %d clusters: %.0f of %.0f plans evaluated, 1 / %.2f on "
        "average (the paper: 1 / 5.48); %.4f of the best throughput on average, %.4f at least (the "
        "paper: 0.962); incremental: 1 / %.2f and %.4f\n",
        pruned.fewer.count, kSearchedGpus, kSearchedClusters, pruned.pruned, pruned.all,
        pruned.fewer.mean(), pruned.kept.mean(), pruned.kept.least, pruned.incremental_fewer.mean(),
        pruned.incremental_kept.mean());
  std::printf(
      "{\"up_to_64_s\":%.3f,\"up_to_1024_s\":%.3f,\"more_mb\":%.0f,\"cases\":%d,\"best_proxy\":%.4f,"
      "\"least_proxy\":%.4f,\"frontiers\":%.4f,\"table\":%.4f,\"data_parallel\":%.4f,\"cells\":%d,"
      "\"cells_optimal\":%.3f,\"cells_unfinished\":%d,\"pruned_cases\":%d,\"pruned_fewer\":%.2f,"
      "\"pruned_kept\":%.4f,\"incremental_fewer\":%.2f,\"incremental_kept\":%.4f}\n",
      times.small_s, times.large_s, times.more_mb, quality.proxy.count, quality.proxy.mean(),
      quality.proxy.count > 0 ? quality.proxy.least : 0, quality.frontier.mean(),
      quality.row.mean(), quality.dp.mean(), quality.cells,
      static_cast<double>(quality.same) / std::max(1, quality.cells), quality.unfinished,
      pruned.fewer.count, pruned.fewer.mean(), pruned.kept.mean(), pruned.incremental_fewer.mean(),
      pruned.incremental_kept.mean());
  return 0;
}
