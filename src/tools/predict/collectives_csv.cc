// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/collectives_csv.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/cluster/gpu_type.h"
#include "tools/predict/csv.h"

namespace swell::predict {

namespace {

using cluster::Collective;
using cluster::CollectiveSeries;
using cluster::CollectiveShape;

constexpr const char* kOtherSend = "send_p2p_ray";
constexpr double kMostBytes = 1e15;

Result<std::string> type_of(const Csv& csv, std::size_t row, const char* column,
                            const char* missing) {
  const auto index = csv.column(column);
  const std::string name = index ? csv.field(row, *index) : missing;
  const auto type = cluster::find_gpu_type(name);
  if (!type)
    return Error(fmt::format("row {}: GPU type \"{}\" is not in the catalogue; leave its rows out",
                             row + 1, name.substr(0, 40)));
  return type->name;
}

Result<MeasuredSeries> arena_row(const Csv& csv, std::size_t row) {
  MeasuredSeries made;
  auto type = type_of(csv, row, "gpu_type", "");
  if (!type) return type.error();
  made.series.type = *std::move(type);
  if (const auto column = csv.column("net")) made.net = csv.field(row, *column);
  made.primitive = csv.field(row, *csv.column("primitive"));
  const auto what =
      made.primitive == kOtherSend ? Collective::send : cluster::find_collective(made.primitive);
  if (!what)
    return Error(fmt::format(
        "row {}: primitive \"{}\" is unknown; use all-reduce, reduce-scatter, all-gather, all-to-all or send",
        row + 1, made.primitive.substr(0, 40)));
  made.series.what = *what;
  const auto whole = [&](const char* column) {
    return csv.whole(row, column, 1, cluster::kMostRanks);
  };
  const auto nodes = whole("nodes"), ranks = whole("group_size"), groups = whole("num_groups"),
             spanned = whole("nodes_spanned");
  for (const auto* each : {&nodes, &ranks, &groups, &spanned})
    if (!*each) return each->error();
  if (*spanned > *nodes || *ranks % *spanned != 0)
    return Error(
        fmt::format("row {}: {} ranks on {} of {} nodes do not stand evenly; leave the row out",
                    row + 1, *ranks, *spanned, *nodes));
  CollectiveShape& shape = made.series.shape;
  shape = {*ranks / *spanned, *spanned, 1, *groups};
  shape.groups_a_node = static_cast<int>((std::int64_t{*groups} * *spanned + *nodes - 1) / *nodes);
  const auto bytes = csv.number(row, "bytes", 1, kMostBytes);
  if (!bytes) return bytes.error();
  const auto seconds = csv.number(row, "latency_s", 1e-9, 1e6);
  if (!seconds) return seconds.error();
  made.series.sizes = {{*bytes, *seconds}};
  return made;
}

Result<MeasuredSeries> vtrain_row(const Csv& csv, std::size_t row) {
  MeasuredSeries made;
  auto type = type_of(csv, row, "gpu", "a100");
  if (!type) return type.error();
  made.series.type = *std::move(type);
  made.primitive = cluster::to_string(Collective::all_reduce);
  const auto gpus = csv.whole(row, "num_gpus", 2, cluster::kMostRanks);
  if (!gpus) return gpus.error();
  made.series.shape.ranks_a_node = *gpus;
  const auto bytes = csv.number(row, "bytes", 1, kMostBytes);
  if (!bytes) return bytes.error();
  const auto time = csv.number(row, "time_ns_outofplace", 1, 1e15);
  if (!time) return time.error();
  made.series.sizes = {{*bytes, *time * 1e-9}};
  return made;
}

}  // namespace

Result<std::vector<MeasuredSeries>> series_from_csv(std::string_view text) {
  const auto csv = Csv::parse(text);
  if (!csv) return csv.error();
  const bool is_arena = csv->column("gpu_type") && csv->column("primitive");
  if (!is_arena && !csv->column("num_gpus"))
    return Error(
        "the columns are those of no communication table; give gpu_type, primitive, nodes, group_size, num_groups, nodes_spanned, bytes and latency_s, or gpu, num_gpus, bytes and time_ns_outofplace");
  std::vector<MeasuredSeries> made;
  std::map<std::tuple<std::string, std::string, std::string, CollectiveShape>, std::size_t> known;
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    auto read = is_arena ? arena_row(*csv, row) : vtrain_row(*csv, row);
    if (!read) return read.error();
    const auto [at, is_new] = known.try_emplace(
        {read->series.type, read->net, read->primitive, read->series.shape}, made.size());
    if (is_new) {
      made.push_back(*std::move(read));
      continue;
    }
    std::vector<CollectiveSeries::Size>& sizes = made[at->second].series.sizes;
    const CollectiveSeries::Size next = read->series.sizes.front();
    if (next.bytes <= sizes.back().bytes)
      return Error(fmt::format(
          "row {}: size {:.0f} of {} follows size {:.0f}; sort the rows of each series by size",
          row + 1, next.bytes, read->primitive, sizes.back().bytes));
    sizes.push_back(next);
  }
  if (made.empty()) return Error("there are no rows below the header; give measured times");
  return made;
}

Result<cluster::CollectiveTable> collective_table(std::vector<MeasuredSeries> measured,
                                                  const std::string& net) {
  std::map<std::string, std::set<std::string>> nets;
  for (const MeasuredSeries& each : measured) nets[each.series.type].insert(each.net);
  for (const auto& [type, names] : nets)
    if (names.size() > 1 && !names.contains(net))
      return Error(
          fmt::format("GPU type {} was measured over the networks {}; choose one with --net", type,
                      fmt::join(names, " and ")));
  // NCCL's sends come first, since only the first send of a shape is kept.
  std::stable_partition(measured.begin(), measured.end(),
                        [](const MeasuredSeries& each) { return each.primitive != kOtherSend; });
  std::set<std::pair<std::string, CollectiveShape>> sends;
  std::vector<CollectiveSeries> kept;
  for (MeasuredSeries& each : measured) {
    if (nets[each.series.type].size() > 1 && each.net != net) continue;
    if (each.series.what == Collective::send &&
        !sends.emplace(each.series.type, each.series.shape).second)
      continue;
    kept.push_back(std::move(each.series));
  }
  return cluster::CollectiveTable::make(std::move(kept));
}

Result<cluster::CollectiveTable> collective_table(std::string_view text, const std::string& net) {
  if (text.starts_with("{")) {
    const auto json = Json::parse(text);
    if (!json) return json.error();
    return cluster::CollectiveTable::from_json(*json);
  }
  auto series = series_from_csv(text);
  if (!series) return series.error();
  return collective_table(*std::move(series), net);
}

}  // namespace swell::predict
