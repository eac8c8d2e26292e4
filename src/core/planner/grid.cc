// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <utility>

#include "core/perf/peak_memory.h"
#include "core/planner/affinity.h"
#include "core/planner/balance.h"
#include "core/planner/growing_plan.h"
#include "core/planner/incremental.h"
#include "core/planner/plan_search.h"

namespace swell::planner {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// Tolerance: equal distances differ by rounding.
constexpr double kSame = 1e-9;
// Maximum number of GPU assignments with equal bias that are tried for one partition. Their number
// grows with the factorial of equal stages, which differ only in position.
constexpr std::size_t kMostTies = 24;

/// Returns the number that, times a power of two, is a stage's number of GPUs: 1 unless CP or EP is
/// not a power of two.
int step_of(const models::Model& model) noexcept {
  const int step = std::lcm(model.cp, model.ep);
  return step >> std::countr_zero(static_cast<unsigned>(step));
}

int log2_of(int power) noexcept { return std::countr_zero(static_cast<unsigned>(power)); }

/// Enumerates the ways to write a number as a sum of a given count of powers of two, larger ones
/// first.
class PowerSums {
 public:
  PowerSums(int sum, int parts) {
    std::vector<int> chosen;
    if (sum >= parts) add(sum, parts, std::bit_floor(static_cast<unsigned>(sum)), chosen);
  }

  /// Returns the sums nearest to `shares`, in the order of `shares`, and their squared distance. A
  /// stage with a larger share never gets fewer GPUs than another.
  double nearest(const std::vector<double>& shares, std::size_t most,
                 std::vector<std::vector<int>>& found) {
    const std::size_t parts = shares.size();
    order_.resize(parts);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return shares[a] > shares[b]; });
    double best = kInfinite;
    near_.clear();
    for (const std::vector<int>& sum : sums_) {
      double distance = 0;
      for (std::size_t k = 0; k < parts && distance <= best + kSame; ++k) {
        const double off = sum[k] - shares[order_[k]];
        distance += off * off;
      }
      if (distance > best + kSame) continue;
      if (distance < best - kSame) near_.clear();
      best = std::min(best, distance);
      near_.push_back(&sum);
    }
    found.clear();
    for (const std::vector<int>* sum : near_) permute(shares, *sum, most, found);
    return best;
  }

 private:
  void add(int left, int parts, unsigned largest, std::vector<int>& chosen) {
    if (parts == 0) {
      if (left == 0) sums_.push_back(chosen);
      return;
    }
    for (unsigned power = largest; power > 0; power /= 2) {
      const long value = power;
      if (value * parts < left) break;           // the rest are at most as large
      if (value + (parts - 1) > left) continue;  // each of the rest is at least 1
      chosen.push_back(static_cast<int>(power));
      add(left - static_cast<int>(power), parts - 1, power, chosen);
      chosen.pop_back();
    }
  }

  /// Adds `sum` and its variants that permute values among stages with equal shares.
  void permute(const std::vector<double>& shares, const std::vector<int>& sum, std::size_t most,
               std::vector<std::vector<int>>& found) {
    std::vector<int> values = sum;
    const std::size_t parts = shares.size();
    for (;;) {
      if (found.size() >= most) return;
      auto& one = found.emplace_back(parts);
      for (std::size_t k = 0; k < parts; ++k) one[order_[k]] = values[k];
      // Next permutation: groups of equal shares advance like the digits of a counter.
      bool more = false;
      for (std::size_t begin = 0; begin < parts && !more;) {
        std::size_t end = begin + 1;
        while (end < parts && std::abs(shares[order_[end]] - shares[order_[begin]]) < kSame) ++end;
        more = std::next_permutation(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                     values.begin() + static_cast<std::ptrdiff_t>(end),
                                     std::greater<>());
        begin = end;
      }
      if (!more) return;
    }
  }

  std::vector<std::vector<int>> sums_;
  std::vector<std::size_t> order_;
  std::vector<const std::vector<int>*> near_;
};

/// Degrees of one stage, and their communication time.
struct Choice {
  int tp = 0;         ///< 0: no degrees fit memory
  double each_s = 0;  ///< seconds of both passes of one micro-batch
  double once_s = 0;  ///< seconds once per iteration: gradients
};

/// Degrees of the stages of one cell, each computed once.
class StageChoices {
 public:
  StageChoices(const perf::PerformanceModel& perf, const Islands& gpus, int micro_batches,
               int stages, std::size_t clusters)
      : perf_(perf),
        memory_(perf),
        gpus_(gpus),
        type_(gpus.front().type),
        micro_batches_(micro_batches),
        micro_batch_(perf.model().global_batch / micro_batches),
        stages_(stages),
        ends_(clusters + 1),
        step_(step_of(perf.model())),
        degrees_(degrees_for(perf.model(), micro_batch_)),
        powers_(static_cast<std::size_t>(log2_of(
                    static_cast<int>(std::bit_floor(static_cast<unsigned>(count(gpus) / step_))))) +
                1),
        known_(static_cast<std::size_t>(stages) * ends_ * ends_ * powers_),
        bandwidth_(powers_ * degrees_.tp.size(), -1) {}

  int micro_batch() const noexcept { return micro_batch_; }

  /// Returns the degrees with the least communication that fit memory, for stage `i` of clusters
  /// [first, end) with `layers` layers on `gpus` GPUs. Prefers the smaller TP degree in a tie.
  const Choice& of(int i, std::size_t first, std::size_t end, int layers, int gpus) {
    Known& known = known_[((static_cast<std::size_t>(i) * ends_ + first) * ends_ + end) * powers_ +
                          static_cast<std::size_t>(log2_of(gpus / step_))];
    if (!known.is_known) known = {find(i, layers, gpus), true};
    return known.choice;
  }

 private:
  struct Known {
    Choice choice;
    bool is_known = false;
  };

  Choice find(int i, int layers, int gpus) {
    Choice best;
    double least = kInfinite;
    const models::Load load = perf_.chain().stage(layers, i == 0, i == stages_ - 1);
    for (std::size_t t = 0; t < degrees_.tp.size() && degrees_.tp[t] <= gpus; ++t) {
      const int tp = degrees_.tp[t], dp = gpus / tp;
      if (dp > degrees_.max_dp || !degrees_.divides(dp) || dp * tp != gpus) continue;
      const int batch = (micro_batch_ + dp - 1) / dp;
      const double peak =
          memory_.peak(i, stages_, micro_batches_, layers, tp, batch, type_, dp).total();
      if (peak > perf_.cluster().type(type_).memory_bytes) continue;
      const double bandwidth = bandwidth_of(t, gpus);
      if (bandwidth <= 0) continue;
      const Choice one{
          tp,
          2 * (load.layers + load.modules * perf_.chain().module_work()) *
              perf_.layer_commu(type_, tp, batch),
          perf::dp_commu(perf_.gradient_bytes(load), 1, dp * perf_.model().cp, bandwidth)};
      const double all = micro_batches_ * one.each_s + one.once_s;
      if (all < least) least = all, best = one;
    }
    return best;
  }

  /// Returns the bandwidth of the gradients of a stage on neighbouring GPUs; 0 if no node can hold
  /// such a TP group.
  double bandwidth_of(std::size_t t, int gpus) {
    double& known =
        bandwidth_[static_cast<std::size_t>(log2_of(gpus / step_)) * degrees_.tp.size() + t];
    if (known >= 0) return known;
    plan::StageLayout stage{0, degrees_.tp[t], {}};
    Islands left = gpus_;
    const int dp = gpus / stage.tp;
    known = take_groups(stage, left, stage.tp, dp) < dp ? 0
            : dp * perf_.model().cp == 1                ? 1
                                                        : perf_.stage_bandwidth(stage);
    return known;
  }

  const perf::PerformanceModel& perf_;
  perf::MemoryModel memory_;
  const Islands& gpus_;
  int type_, micro_batches_, micro_batch_, stages_;
  std::size_t ends_;
  int step_;
  Degrees degrees_;
  std::size_t powers_;
  std::vector<Known> known_;  ///< by stage, first and end cluster, log2 of the GPUs
  std::vector<double> bandwidth_;
};

double distance_of(const plan::Layout& a, const plan::Layout& b) noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < a.stages.size(); ++i) {
    const double off = a.stages[i].layers - b.stages[i].layers;
    sum += off * off;
  }
  return sum;
}

bool is_beaten(const std::vector<CellPlan>& frontier, double bias, double communication_s) {
  return std::any_of(frontier.begin(), frontier.end(), [&](const CellPlan& plan) {
    return plan.bias <= bias + kSame && plan.communication_s <= communication_s;
  });
}

}  // namespace

bool place_stages(const StageSplit& one, Islands gpus, int micro_batch, plan::Layout& layout) {
  std::vector<std::size_t> order(one.gpus.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return one.gpus[a] > one.gpus[b]; });
  layout.stages.assign(one.gpus.size(), {});
  for (const std::size_t i : order) {
    plan::StageLayout& stage = layout.stages[i];
    stage.layers = one.layers[i];
    stage.tp = one.tp[i];
    const int dp = one.gpus[i] / stage.tp;
    if (take_groups(stage, gpus, stage.tp, dp) < dp) return false;
    int more = micro_batch % dp;
    for (plan::GroupLayout& group : stage.groups)
      group.local_batch = micro_batch / dp + (more-- > 0 ? 1 : 0);
  }
  return true;
}

Grid::Grid(const perf::PerformanceModel& perf, int micro_batches, GridOptions options)
    : perf_(perf), micro_batches_(micro_batches), options_(options) {
  const models::Chain& chain = perf.chain();
  head_ = perf.coefficients().head_layers * (1 + chain.mtp_heads()) +
          chain.mtp_heads() * chain.module_work();
  const int layers = perf.model().layers;
  const auto most = static_cast<std::size_t>(std::clamp(options.clusters, 1, layers));
  std::vector<double> cost(most, 1), base(most - 1, 0);
  base.push_back(head_);
  const std::vector<int> cap(most, layers);
  min_max_split(layers, cost, base, cap, clusters_);
}

double Grid::load_of(std::size_t first, std::size_t end) const noexcept {
  double load = end == clusters_.size() ? head_ : 0;
  for (std::size_t k = first; k < end; ++k) load += clusters_[k];
  return load;
}

CellPlans Grid::plans(const Islands& gpus, int stages, const Budget& budget) const {
  const int total = count(gpus);
  CellPlans cell{{gpus.front().type, total, stages}, {}};
  const std::size_t clusters = clusters_.size(), parts = static_cast<std::size_t>(stages);
  const int step = step_of(perf_.model());
  if (parts > clusters || total % step != 0 || stages > total / step) return cell;
  PowerSums sums(total / step, stages);
  StageChoices choices(perf_, gpus, micro_batches_, stages, clusters);
  const double per_load = total / step / load_of(0, clusters);
  // Ends of the stages: each stage takes the clusters after the end of the one before.
  std::vector<std::size_t> end(parts);
  std::iota(end.begin(), end.end(), std::size_t{1});
  end.back() = clusters;
  std::vector<double> shares(parts);
  std::vector<std::vector<int>> assignments;
  StageSplit one{std::vector<int>(parts), {}, std::vector<int>(parts)};
  for (;;) {
    if (budget.expired()) break;
    ++cell.partitions;
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t first = i == 0 ? 0 : end[i - 1];
      shares[i] = per_load * load_of(first, end[i]);
      one.layers[i] = std::accumulate(clusters_.begin() + static_cast<std::ptrdiff_t>(first),
                                      clusters_.begin() + static_cast<std::ptrdiff_t>(end[i]), 0);
    }
    const double bias = step * std::sqrt(sums.nearest(shares, kMostTies, assignments));
    for (std::vector<int>& assigned : assignments) {
      for (int& number : assigned) number *= step;
      double sum = 0, slowest = 0, once = 0;
      bool fits = true;
      for (std::size_t i = 0; i < parts && fits; ++i) {
        const Choice& choice = choices.of(static_cast<int>(i), i == 0 ? 0 : end[i - 1], end[i],
                                          one.layers[i], assigned[i]);
        fits = choice.tp > 0;
        one.tp[i] = choice.tp;
        sum += choice.each_s;
        slowest = std::max(slowest, choice.each_s);
        once += choice.once_s;
      }
      const double communication = (micro_batches_ - 1) * slowest + sum + once;  // eq. 4
      if (!fits || is_beaten(cell.frontier, bias, communication)) continue;
      one.gpus = assigned;
      CellPlan plan{{micro_batches_, {}}, bias, communication};
      if (place_stages(one, gpus, choices.micro_batch(), plan.layout))
        add_to_frontier(cell.frontier, std::move(plan));
    }
    // Next partition: advance the last end that can move, and reset the ends after it.
    std::size_t i = parts - 1;
    while (i > 0 && end[i - 1] == clusters - (parts - i)) --i;
    if (i == 0) break;
    ++end[i - 1];
    for (std::size_t j = i; j + 1 < parts; ++j) end[j] = end[j - 1] + 1;
  }
  reduce_frontier(cell.frontier, static_cast<std::size_t>(options_.frontier));
  for (CellPlan& plan : cell.frontier) plan.seconds = perf_.iteration_time(plan.layout).total();
  const auto fastest =
      std::min_element(cell.frontier.begin(), cell.frontier.end(),
                       [](const CellPlan& a, const CellPlan& b) { return a.seconds < b.seconds; });
  cell.fastest = static_cast<std::size_t>(fastest - cell.frontier.begin());
  return cell;
}

std::vector<CellPlans> Grid::cells(const Islands& gpus, const Budget& budget) const {
  std::vector<CellPlans> cells;
  int most = std::min(count(gpus), static_cast<int>(clusters_.size()));
  if (options_.most_stages > 0) most = std::min(most, options_.most_stages);
  for (int stages = 1; stages <= most && !budget.expired(); ++stages)
    cells.push_back(plans(gpus, stages, budget));
  return cells;
}

const CellPlan* best_proxy(const std::vector<CellPlans>& cells) noexcept {
  const CellPlan* best = nullptr;
  for (const CellPlans& cell : cells)
    if (cell.has_plan() && (best == nullptr || cell.proxy().seconds < best->seconds))
      best = &cell.proxy();
  return best;
}

const CellPlan* best_plan(const std::vector<CellPlans>& cells) noexcept {
  const CellPlan* best = nullptr;
  for (const CellPlans& cell : cells)
    if (cell.has_plan() && (best == nullptr || cell.best().seconds < best->seconds))
      best = &cell.best();
  return best;
}

std::vector<std::vector<int>> nearest_powers(const std::vector<double>& shares, int gpus,
                                             std::size_t most) {
  std::vector<std::vector<int>> found;
  PowerSums(gpus, static_cast<int>(shares.size())).nearest(shares, most, found);
  return found;
}

void add_to_frontier(std::vector<CellPlan>& frontier, CellPlan plan) {
  if (is_beaten(frontier, plan.bias, plan.communication_s)) return;
  std::erase_if(frontier, [&](const CellPlan& other) {
    return plan.bias <= other.bias + kSame && plan.communication_s <= other.communication_s;
  });
  const auto behind =
      std::upper_bound(frontier.begin(), frontier.end(), plan,
                       [](const CellPlan& a, const CellPlan& b) { return a.bias < b.bias; });
  frontier.insert(behind, std::move(plan));
}

void reduce_frontier(std::vector<CellPlan>& frontier, std::size_t most) {
  while (frontier.size() > std::max<std::size_t>(most, 1)) {
    double nearest = kInfinite;
    std::size_t dropped = 0;
    for (std::size_t a = 0; a < frontier.size(); ++a)
      for (std::size_t b = a + 1; b < frontier.size(); ++b) {
        const double distance = distance_of(frontier[a].layout, frontier[b].layout);
        if (distance >= nearest) continue;
        nearest = distance;
        dropped = a;  // `a` has the smaller bias, so it communicates more
      }
    frontier.erase(frontier.begin() + static_cast<std::ptrdiff_t>(dropped));
  }
}

namespace {

/// Returns the GPUs of `type` that form whole groups of `cp` on their nodes.
std::vector<cluster::GpuRef> gpus_of(const cluster::Cluster& cluster, int type, int cp) {
  std::vector<cluster::GpuRef> gpus;
  std::size_t first = 0;  // index of the first GPU of the current node
  const auto drop_rest = [&] {
    gpus.resize(gpus.size() - (gpus.size() - first) % static_cast<std::size_t>(cp));
    first = gpus.size();
  };
  for (const cluster::GpuRef& gpu : unused({}, cluster)) {
    if (cluster.type_of(gpu) != type) continue;
    if (first < gpus.size() && (gpus[first].node != gpu.node || gpus[first].part != gpu.part))
      drop_rest();
    gpus.push_back(gpu);
  }
  drop_rest();
  return gpus;
}

/// Replaces plans of the rows of one type by faster ones that Incremental derives from the first
/// row's plan. `gpus`: the GPUs of the type, in order. Returns false if time was up.
bool add_incremental(std::vector<GridRow*> rows, const perf::PerformanceModel& perf,
                     const std::vector<cluster::GpuRef>& gpus, const Budget& budget) {
  std::erase_if(rows, [](const GridRow* row) { return row->layout.stages.empty(); });
  if (rows.empty()) return true;
  const auto all = gpus.begin() + rows.back()->gpus, first = gpus.begin() + rows.front()->gpus;
  Problem problem{perf, rows.front()->layout, {first, all}};
  Incremental::Options options;
  options.max_free = static_cast<int>(std::max<std::size_t>(1, problem.free.size()));
  const ScaleTable table = Incremental(options).solve(problem, budget);
  for (GridRow* row : rows) {
    const auto behind =
        std::upper_bound(table.rows.begin(), table.rows.end(), row->gpus,
                         [](int number, const ScaleRow& one) { return number < one.gpus; });
    const ScaleRow& found = *std::prev(behind);
    const double seconds = perf.model().global_batch / found.throughput;
    if (!(seconds < row->seconds * (1 - kSame))) continue;
    row->layout = found.layout;
    row->seconds = seconds;
    row->by = "incremental";
  }
  return table.complete;
}

}  // namespace

GridTable grid_table(const perf::PerformanceModel& perf, int micro_batches, std::vector<int> sizes,
                     const Budget& budget, GridOptions options) {
  const Grid grid(perf, micro_batches, options);
  const cluster::Cluster& cluster = perf.cluster();
  GridTable table;
  if (sizes.empty())
    for (int size = step_of(perf.model()); size <= cluster.gpu_count(); size *= 2)
      sizes.push_back(size);
  for (int type = 0; type < static_cast<int>(cluster.types().size()); ++type) {
    const std::vector<cluster::GpuRef> gpus = gpus_of(cluster, type, perf.model().cp);
    const std::size_t first = table.rows.size();
    for (const int size : sizes) {
      if (size > static_cast<int>(gpus.size())) break;
      Islands used;
      std::for_each_n(gpus.begin(), size, [&](const cluster::GpuRef& gpu) {
        add_to(used, gpu.node, type, plan::GpuMask{1} << gpu.index, gpu.part);
      });
      GridRow row{type, size, grid.cells(used, budget), {}};
      if (const CellPlan* best = best_plan(row.cells)) {
        row.layout = best->layout;
        row.seconds = best->seconds;
        row.by = "grid";
      }
      table.rows.push_back(std::move(row));
    }
    std::vector<GridRow*> rows;
    for (std::size_t i = first; i < table.rows.size(); ++i) rows.push_back(&table.rows[i]);
    table.complete &= add_incremental(std::move(rows), perf, gpus, budget);
  }
  table.complete = table.complete && !budget.expired();
  return table;
}

bool has_cells(const Islands& gpus, const models::Model& model) noexcept {
  const int number = count(gpus), step = step_of(model);
  return number > 0 && number % step == 0 &&
         std::has_single_bit(static_cast<unsigned>(number / step)) &&
         std::all_of(gpus.begin(), gpus.end(),
                     [&](const Island& island) { return island.type == gpus[0].type; });
}

ScaleTable GridSolver::solve(const Problem& problem, const Budget& budget) const {
  Evaluator evaluator(problem.perf, problem.current.micro_batch());
  evaluator.stop_by(budget);
  GrowingPlan plan(problem, evaluator);
  const int micro_batches = problem.current.micro_batches;
  const Grid grid(problem.perf, micro_batches, {.clusters = options_.clusters});
  for (std::size_t row = 0; row <= plan.free_gpus(); ++row) {
    if (budget.expired()) {
      plan.give_up();
      break;
    }
    if (row > 0) {
      plan.add_gpu(row - 1);
      if (has_cells(plan.gpus, problem.perf.model())) {
        const auto cells = grid.cells(plan.gpus, budget);
        if (budget.expired()) plan.give_up();
        long partitions = 0;
        for (const CellPlans& cell : cells) partitions += cell.partitions;
        evaluator.count(partitions);
        const CellPlan* best = best_plan(cells);
        if (best != nullptr && best->seconds < plan.best.seconds)
          plan.best = {best->layout,
                       {},
                       best->seconds,
                       fmt::format("of the cell with {} stages", best->layout.pp())};
        if (options_.search != Search::none && !budget.expired()) {
          const auto pruning =
              options_.search == Search::pruned ? pruning_by(grid, cells) : std::nullopt;
          SearchedPlan found;
          if (pruning || options_.search == Search::all)
            found = search_plans(problem.perf, micro_batches, grid, plan.gpus, pruning, budget);
          evaluator.count(found.evaluated);
          if (!found.complete) plan.give_up();
          if (!found.layout.stages.empty() && found.seconds < plan.best.seconds)
            plan.best = {found.layout, {}, found.seconds, "by a search of the best cell's plans"};
        }
      }
    }
    plan.write_row();
  }
  return plan.take();
}

}  // namespace swell::planner
