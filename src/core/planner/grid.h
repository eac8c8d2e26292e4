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

/// A plan of a cell, assessed without running it.
struct CellPlan {
  plan::Layout layout;
  /// B_comp of eq. 3, in GPUs: 0 if GPUs are proportional to the loads.
  double bias = 0;
  double communication_s = 0;  ///< l_comm of eq. 4, in seconds
  double seconds = 0;          ///< iteration time by the performance model; 0: not predicted
};

/// The plans that were found for a cell.
struct CellPlans {
  Cell cell;
  /// The Pareto frontier of bias and communication, by rising bias. The first plan is the proxy
  /// plan. Empty if no plan fits memory.
  std::vector<CellPlan> frontier;
  std::size_t fastest = 0;  ///< plan of the frontier that is the fastest by the performance model
  long partitions = 0;      ///< number of partitions considered
  bool has_plan() const noexcept { return !frontier.empty(); }
  const CellPlan& proxy() const noexcept { return frontier.front(); }
  const CellPlan& best() const noexcept { return frontier[fastest]; }
};

struct GridOptions {
  int clusters = 16;    ///< O: layer clusters, of which partitions consist
  int frontier = 8;     ///< maximum number of plans, see reduce_frontier()
  int most_stages = 0;  ///< maximum number of stages of a cell; 0: the number of clusters
};

/// Finds the plans of cells by Arena's section 3.3, without running them. Considers all partitions
/// of the layer clusters into stages. GPUs are assigned by load, as powers of two with the least
/// bias that sum to the cell's GPUs. Each stage gets the DP and TP degrees with the least
/// communication that fit memory. Loads and times come from the performance model's coefficients,
/// which may be from data sheets or from a profile. Keeps a reference to `perf`, which must outlive
/// it.
class Grid {
 public:
  Grid(const perf::PerformanceModel& perf, int micro_batches, GridOptions options = {});

  /// Returns the plans of the cell with `stages` stages on all of `gpus`, which are of one type.
  /// The result is incomplete if `budget` expires. REQUIRES: gpus is not empty, stages >= 1.
  CellPlans plans(const Islands& gpus, int stages, const Budget& budget) const;
  /// Returns the cells of `gpus` for each number of stages, in rising order.
  std::vector<CellPlans> cells(const Islands& gpus, const Budget& budget) const;

  /// Returns the number of layers of each cluster.
  const std::vector<int>& clusters() const noexcept { return clusters_; }
  /// Returns the load of the clusters [first, end), in layers.
  double load_of(std::size_t first, std::size_t end) const noexcept;

 private:
  const perf::PerformanceModel& perf_;
  int micro_batches_;
  GridOptions options_;
  std::vector<int> clusters_;
  double head_ = 0;  ///< load of all heads, in layers
};

/// Returns the fastest of all cells' proxy plans, as Arena does; null if no cell has a plan.
const CellPlan* best_proxy(const std::vector<CellPlans>& cells) noexcept;
/// Returns the fastest plan of all cells' frontiers; null if no cell has a plan.
const CellPlan* best_plan(const std::vector<CellPlans>& cells) noexcept;

/// Returns the powers of two that sum to `gpus`, one for each of `shares`, with the least distance
/// from the shares (eq. 3): all ties, up to `most`. Empty if there are no such powers, as for two
/// shares of 7 GPUs.
std::vector<std::vector<int>> nearest_powers(const std::vector<double>& shares, int gpus,
                                             std::size_t most);

/// Adds `plan` unless a plan of `frontier` is as good in both metrics. Removes the plans that it
/// beats. Keeps the order by rising bias.
void add_to_frontier(std::vector<CellPlan>& frontier, CellPlan plan);
/// Reduces a frontier of add_to_frontier() to `most` plans. Repeatedly takes the two plans whose
/// layers per stage are most similar and drops the one with more communication (section 3.3).
void reduce_frontier(std::vector<CellPlan>& frontier, std::size_t most);

/// A partition with the degrees of its stages.
struct StageSplit {
  std::vector<int> layers, gpus, tp;
};
/// Places the stages of `one` on `gpus`, larger ones first, so that powers of two stay within
/// nodes. Returns false if a TP group would span two nodes.
bool place_stages(const StageSplit& one, Islands gpus, int micro_batch, plan::Layout& layout);

/// The best plan found for a number of GPUs of one type, for a job that does not run yet.
struct GridRow {
  int type = 0;
  int gpus = 0;
  std::vector<CellPlans> cells;
  plan::Layout layout;  ///< has no stages if no plan fits memory
  double seconds = 0;   ///< iteration time by the performance model
  const char* by = "";  ///< "grid", or "incremental" if Suika's planner was faster
};
struct GridTable {
  std::vector<GridRow> rows;  ///< by type and rising GPUs
  bool complete = true;       ///< false: time was up before the last row
};

/// Returns the plans of a job for each of `sizes` (rising; empty: powers of two) and each type of
/// perf.cluster(), on the first GPUs of the type. Leaves out sizes that exceed the type's GPUs.
/// Each row has the faster of two plans: the best plan of all frontiers, and the plan that
/// Incremental derives from the smallest row's plan.
GridTable grid_table(const perf::PerformanceModel& perf, int micro_batches, std::vector<int> sizes,
                     const Budget& budget, GridOptions options = {});

/// Returns whether `model` has cells on `gpus`: they must be of one type, and a power of two of its
/// smallest groups.
bool has_cells(const Islands& gpus, const models::Model& model) noexcept;

/// Arena's cells as a scale table: for each power of two of GPUs of one type, the fastest plan of
/// all frontiers. The rows in between repeat the plan of the row before.
class GridSolver final : public Solver {
 public:
  /// Maximum number of plans tried in addition to the frontiers' plans (search_plans()).
  enum class Search : std::uint8_t { none, pruned, all };
  struct Options {
    Search search = Search::none;
    int clusters = 16;  ///< GridOptions::clusters; fewer if all plans are tried
  };
  GridSolver() = default;
  explicit GridSolver(Options options) noexcept : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

}  // namespace swell::planner
