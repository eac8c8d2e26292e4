// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/perf/performance_model.h"
#include "core/plan/layout.h"
#include "core/planner/island.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// Arena's grid (section 3.2): the plans of one job on `gpus` GPUs of one type with `stages`
/// stages.
struct Cell {
  int type = 0;  ///< index into Cluster::types
  int gpus = 0;
  int stages = 0;
  friend bool operator==(const Cell&, const Cell&) = default;
};

/// A plan of a cell, assessed without a run.
struct CellPlan {
  plan::Layout layout;
  double bias = 0;             ///< b_comp of eq. 3, in GPUs: 0 where GPUs follow the loads exactly
  double communication_s = 0;  ///< l_comm of eq. 4, in seconds
  double seconds = 0;          ///< of one iteration, by the performance model; 0: not predicted
};

/// The plans that were found for a cell.
struct CellPlans {
  Cell cell;
  /// The plans that no other one beats in both bias and communication, by rising bias. The first is
  /// the proxy plan. Empty where no plan fits memory.
  std::vector<CellPlan> frontier;
  std::size_t fastest = 0;  ///< plan of the frontier that is the fastest by the performance model
  long partitions = 0;      ///< considered
  bool has_plan() const noexcept { return !frontier.empty(); }
  const CellPlan& proxy() const noexcept { return frontier.front(); }
  const CellPlan& best() const noexcept { return frontier[fastest]; }
};

struct GridOptions {
  int clusters = 16;    ///< O: runs of layers that partitions are made of
  int frontier = 8;     ///< more plans than these are dropped, see reduce_frontier()
  int most_stages = 0;  ///< of a cell; 0: as many as clusters
};

/// Finds the plans of cells by Arena's section 3.3, without a run: all partitions of the clusters
/// of layers into stages; GPUs by load, as powers of two that sum to the number with least bias; in
/// each stage the degrees of DP and TP with least communication that fit memory. Loads and times
/// are those of the performance model's coefficients, be they from data sheets or from a profile.
/// Keeps a reference to `perf`, which must outlive it.
class Grid {
 public:
  Grid(const perf::PerformanceModel& perf, int micro_batches, GridOptions options = {});

  /// Plans of the cell with `stages` stages on `gpus`, all of one type; the whole of their number
  /// is used. Not complete where `budget` expires. REQUIRES: gpus is not empty, stages >= 1.
  CellPlans plans(const Islands& gpus, int stages, const Budget& budget) const;
  /// The cells of `gpus` with any number of stages, by rising stages.
  std::vector<CellPlans> cells(const Islands& gpus, const Budget& budget) const;

  /// Layers of each cluster.
  const std::vector<int>& clusters() const noexcept { return clusters_; }
  /// Load of the clusters [first, end), in layers.
  double load_of(std::size_t first, std::size_t end) const noexcept;

 private:
  const perf::PerformanceModel& perf_;
  int micro_batches_;
  GridOptions options_;
  std::vector<int> clusters_;
  double head_ = 0;  ///< load of all heads, in layers
};

/// The fastest plan of all cells' proxies, as Arena has it; null where no cell has a plan.
const CellPlan* best_proxy(const std::vector<CellPlans>& cells) noexcept;
/// The fastest plan of all cells' frontiers; null where no cell has a plan.
const CellPlan* best_plan(const std::vector<CellPlans>& cells) noexcept;

/// Powers of two that sum to `gpus`, one for each of `shares`, with the least distance from them
/// (eq. 3): all ties, but at most `most`. Empty where no such powers exist, as for two shares
/// of 7 GPUs.
std::vector<std::vector<int>> nearest_powers(const std::vector<double>& shares, int gpus,
                                             std::size_t most);

/// Adds `plan` where no plan of `frontier` is as good in both metrics, and removes those that it
/// beats. Keeps the order by rising bias.
void add_to_frontier(std::vector<CellPlan>& frontier, CellPlan plan);
/// Leaves `most` plans of a frontier as add_to_frontier() makes it: of the pair with the most
/// similar layers of stages, the one with more communication is dropped, again and again
/// (section 3.3).
void reduce_frontier(std::vector<CellPlan>& frontier, std::size_t most);

/// A partition with the degrees of its stages.
struct StageSplit {
  std::vector<int> layers, gpus, tp;
};
/// Puts the stages of `one` onto `gpus`, the larger ones first, so that powers of two stay within
/// nodes. False where some TP group would be over two nodes.
bool place_stages(const StageSplit& one, Islands gpus, int micro_batch, plan::Layout& layout);

/// The best plan found for a number of GPUs of one type, for a job that does not run yet.
struct GridRow {
  int type = 0;
  int gpus = 0;
  std::vector<CellPlans> cells;
  plan::Layout layout;  ///< without stages where no plan fits memory
  double seconds = 0;   ///< of one iteration, by the performance model
  const char* by = "";  ///< "grid", or "incremental": Suika's planner, which was faster
};
struct GridTable {
  std::vector<GridRow> rows;  ///< by type and rising GPUs
  bool complete = true;       ///< false: time was up before the last row
};

/// Plans of a job for each of `sizes`, rising, of each type of perf.cluster(), on the type's first
/// GPUs; empty: powers of two. A size that a type does not have is left out. Each row has the
/// faster one of the best plan of all frontiers and what Incremental finds from the smallest row's
/// plan on.
GridTable grid_table(const perf::PerformanceModel& perf, int micro_batches, std::vector<int> sizes,
                     const Budget& budget, GridOptions options = {});

/// Whether cells of `model` are made of `gpus`: a power of two of its smallest groups, of one type.
bool has_cells(const Islands& gpus, const models::Model& model) noexcept;

/// Arena's cells as a scale table: at each power of two, on GPUs of one type, the fastest plan of
/// all frontiers. Rows between have the plan before.
class GridSolver final : public Solver {
 public:
  /// Plans that are tried besides those of the frontiers (search_plans()).
  enum class Search : std::uint8_t { none, pruned, all };
  struct Options {
    Search search = Search::none;
    int clusters = 16;  ///< GridOptions::clusters; fewer where all plans are tried
  };
  GridSolver() = default;
  explicit GridSolver(Options options) noexcept : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

}  // namespace swell::planner
