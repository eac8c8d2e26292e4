// SPDX-License-Identifier: GPL-2.0-or-later
// swell plan --grid: plans of a job before it runs, by GPU type and number.
#include "tools/plan_grid.h"

#include <algorithm>
#include <fmt/format.h>

#include "control/elastic_spec.h"
#include "core/perf/peak_memory.h"
#include "core/planner/combination.h"
#include "core/planner/grid.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

constexpr double GiB = 1024.0 * 1024.0 * 1024.0;

/// Returns the peak memory of the fullest GPU, in bytes.
double peak_of(const plan::Layout& layout, const perf::PerformanceModel& perf) {
  const perf::MemoryModel memory(perf);
  double peak = 0;
  for (int i = 0; i < layout.pp(); ++i) peak = std::max(peak, memory.stage_peak(layout, i).total());
  return peak;
}

std::string summary_of(const plan::Layout& layout, const perf::PerformanceModel& perf) {
  return plan::name_all(layout, perf.cluster(), perf.model()).summary();
}

/// Returns why the row has no plan: CP or EP excludes its GPU count, or memory is too small.
Result<void> has_plan(const planner::GridRow& row, const perf::PerformanceModel& perf) {
  if (auto good = planner::check_gpus(row.gpus, perf.model()); !good) return good.error();
  return row.layout.stages.empty() ? Result<void>(Error("no plan fits")) : Result<void>();
}

planner::ScaleSource source_of(const GridRequest& request, int type) {
  return request.costs && request.costs->knows(type) ? planner::ScaleSource::one_device
                                                     : request.source;
}

/// Returns types by the source of their times: "one device (h100), data sheets (a100)".
std::string sources_of(const planner::GridTable& table, const perf::PerformanceModel& perf,
                       const GridRequest& request) {
  std::string all;
  for (const auto source : {planner::ScaleSource::one_device, request.source}) {
    std::string types;
    int last = -1;
    for (const planner::GridRow& row : table.rows) {
      if (row.type == last || source_of(request, row.type) != source) continue;
      last = row.type;
      types += (types.empty() ? "" : ", ") + perf.cluster().type(row.type).name;
    }
    if (!types.empty())
      all += fmt::format("{}{} ({})", all.empty() ? "" : ", ", planner::words_for(source), types);
  }
  return all;
}

Json cell_json(const planner::CellPlans& cell, const perf::PerformanceModel& perf) {
  Json json = Json::object({{"stages", cell.cell.stages},
                            {"partitions", static_cast<int>(cell.partitions)},
                            {"frontier", static_cast<int>(cell.frontier.size())}});
  if (!cell.has_plan()) return json;
  const planner::CellPlan& proxy = cell.proxy();
  json.set("bias", proxy.bias);
  json.set("communication_s", proxy.communication_s);
  json.set("samples_per_s", perf.model().global_batch / proxy.seconds);
  json.set("best_samples_per_s", perf.model().global_batch / cell.best().seconds);
  json.set("peak_bytes", peak_of(proxy.layout, perf));
  json.set("summary", summary_of(proxy.layout, perf));
  json.set("plan", plan::name_all(proxy.layout, perf.cluster(), perf.model()).to_json());
  return json;
}

void print_json(const planner::GridTable& table, const perf::PerformanceModel& perf,
                const GridRequest& request) {
  std::vector<Json> rows;
  for (const planner::GridRow& row : table.rows) {
    Json json = Json::object({{"type", perf.cluster().type(row.type).name}, {"gpus", row.gpus}});
    if (const auto good = planner::check_gpus(row.gpus, perf.model()); !good) {
      json.set("why", good.error().message());
    } else if (!row.layout.stages.empty()) {
      json.set("samples_per_s", perf.model().global_batch / row.seconds);
      json.set("by", row.by);
      json.set("source", planner::name_of(source_of(request, row.type)));
      json.set("peak_bytes", peak_of(row.layout, perf));
      json.set("plan", plan::name_all(row.layout, perf.cluster(), perf.model()).to_json());
    }
    if (request.cells) {
      std::vector<Json> cells;
      for (const planner::CellPlans& cell : row.cells) cells.push_back(cell_json(cell, perf));
      json.set("cells", array_of(cells));
    }
    rows.push_back(std::move(json));
  }
  write_json_line(Json::object({{"model", perf.model().name},
                                {"cluster", perf.cluster().name()},
                                {"source", planner::name_of(request.source)},
                                {"samples_per_step", perf.model().global_batch},
                                {"complete", table.complete},
                                {"rows", array_of(rows)}}));
}

void print_cells(const planner::GridTable& table, const perf::PerformanceModel& perf) {
  say("{:<14} {:>5} {:>6} {:>6} {:>14} {:>10} {:>8} {:>10}  {}\n", "type", "GPUs", "stages", "bias",
      "communication", "samples/s", "frontier", "its best", "proxy plan");
  for (const planner::GridRow& row : table.rows)
    for (const planner::CellPlans& cell : row.cells)
      if (cell.has_plan())
        say("{:<14} {:>5} {:>6} {:>6.2f} {:>12.4f} s {:>10.2f} {:>8} {:>10.2f}  {}\n",
            perf.cluster().type(row.type).name, row.gpus, cell.cell.stages, cell.proxy().bias,
            cell.proxy().communication_s, perf.model().global_batch / cell.proxy().seconds,
            cell.frontier.size(), perf.model().global_batch / cell.best().seconds,
            summary_of(cell.proxy().layout, perf));
  say("\n");
}

}  // namespace

int print_grid(const perf::PerformanceModel& perf, const GridRequest& request) {
  std::vector<int> sizes;
  if (!request.sizes.empty()) {
    const auto spec = control::ElasticSpec::parse("sizes=" + request.sizes);
    if (!spec)
      return fail(Error(fmt::format(
          "--sizes {} is not valid; write rising numbers of GPUs separated by '/', such as 4/8/12",
          request.sizes)));
    sizes = spec->sizes;
  }
  const planner::GridTable table =
      planner::grid_table(perf, request.micro_batches, std::move(sizes), {request.expired});
  if (table.rows.empty())
    return fail(Error(fmt::format("--sizes {}: cluster {} has no GPU type with that many GPUs",
                                  request.sizes, perf.cluster().name())));
  if (request.json) {
    print_json(table, perf, request);
    return 0;
  }
  if (request.cells) print_cells(table, perf);
  say("{:<14} {:>5} {:>10} {:>8}  {:<12} {}\n", "type", "GPUs", "samples/s", "peak GiB", "found by",
      "plan");
  for (const planner::GridRow& row : table.rows) {
    const std::string& type = perf.cluster().type(row.type).name;
    if (const auto good = has_plan(row, perf); !good)
      say("{:<14} {:>5} {:>10} {:>8}  {:<12} {}\n", type, row.gpus, "-", "-", "-",
          good.error().message());
    else
      say("{:<14} {:>5} {:>10.2f} {:>8.0f}  {:<12} {}\n", type, row.gpus,
          perf.model().global_batch / row.seconds, peak_of(row.layout, perf) / GiB, row.by,
          summary_of(row.layout, perf));
  }
  if (request.costs) say("predicted from {}\n", sources_of(table, perf, request));
  else if (const char* words = planner::words_for(request.source); *words != '\0')
    say("predicted from {}\n", words);
  if (!table.complete) say("the search reached its limit (--time-limit): the best found so far\n");
  return 0;
}

}  // namespace swell::tools
