// SPDX-License-Identifier: GPL-2.0-or-later
// Compares communication tables with measured collectives: collectives FILE.csv (the columns of
// `swell topo import`). First keeps one size in eight of each series (and the largest), and
// interpolates the others; then leaves out each shape in turn and estimates it from the others.
// Last line: JSON, errors as fractions. Exit status 1 if the error over sizes is above 4 % on
// average, or above 2 % from 1 MB on.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tools/predict/collectives_csv.h"

namespace {

using namespace swell;
using cluster::CollectiveSeries;

constexpr std::size_t kKept = 8;
constexpr double kLarge = 1 << 20;

struct Errors {
  std::vector<double> all;
  void add(double error) { all.push_back(error); }
  double mean() const {
    double sum = 0;
    for (const double error : all) sum += error;
    return all.empty() ? 0 : sum / static_cast<double>(all.size());
  }
  double at(double share) const {
    if (all.empty()) return 0;
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
};

CollectiveSeries thinned(const CollectiveSeries& series) {
  CollectiveSeries kept = series;
  kept.sizes.clear();
  for (std::size_t i = 0; i < series.sizes.size(); ++i)
    if (i % kKept == 0 || i + 1 == series.sizes.size()) kept.sizes.push_back(series.sizes[i]);
  return kept;
}

void sizes_between(const CollectiveSeries& series, Errors& any, Errors& large) {
  const CollectiveSeries kept = thinned(series);
  for (std::size_t i = 0; i + 1 < series.sizes.size(); ++i) {
    if (i % kKept == 0) continue;
    const CollectiveSeries::Size& size = series.sizes[i];
    const double error = std::abs(kept.seconds(size.bytes) / size.seconds - 1);
    any.add(error);
    if (size.bytes >= kLarge) large.add(error);
  }
}

std::string name_of(const std::string& net, const CollectiveSeries& series) {
  const cluster::CollectiveShape& shape = series.shape;
  return series.type + " " + net + " " + cluster::to_string(series.what) + ", " +
         std::to_string(shape.ranks_a_node) + " ranks a node, " + std::to_string(shape.nodes) +
         " nodes, " + std::to_string(shape.groups_a_node) + " groups a node, " +
         std::to_string(shape.groups) + " in all";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: collectives FILE.csv\n");
    return 2;
  }
  std::ifstream in(argv[1]);
  const auto measured =
      predict::series_from_csv(std::string(std::istreambuf_iterator<char>(in), {}));
  if (!measured) {
    std::fprintf(stderr, "collectives: %s: %s\n", argv[1], measured.error().message().c_str());
    return 2;
  }
  std::map<std::string, std::pair<Errors, Errors>> by_primitive;
  Errors any, large;
  for (const auto& each : *measured) {
    auto& own = by_primitive[each.primitive];
    sizes_between(each.series, own.first, own.second);
    sizes_between(each.series, any, large);
  }
  std::printf("one size in %zu kept, %zu series\n", kKept, measured->size());
  for (const auto& [name, errors] : by_primitive)
    std::printf("  %-15s %6zu sizes, mean %5.2f %%; from 1 MB on %5.2f %%\n", name.c_str(),
                errors.first.all.size(), 100 * errors.first.mean(), 100 * errors.second.mean());

  // A table has no network column and one send a shape, so make one table for each network and
  // software.
  std::map<std::tuple<std::string, bool>, std::vector<CollectiveSeries>> tables;
  for (const auto& each : *measured)
    tables[{each.net, each.primitive == cluster::to_string(each.series.what)}].push_back(
        each.series);
  Errors shapes, shapes_large;
  std::vector<std::pair<double, std::string>> worst;
  int alone = 0;
  for (const auto& [key, series] : tables)
    for (std::size_t left = 0; left < series.size(); ++left) {
      const CollectiveSeries& out = series[left];
      std::vector<CollectiveSeries> others = series;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(left));
      const auto table = cluster::CollectiveTable::make(std::move(others));
      if (!table || !table->seconds(out.type, out.what, out.shape, kLarge)) {
        ++alone;
        continue;
      }
      Errors own, own_large;
      for (const CollectiveSeries::Size& size : out.sizes) {
        const double error =
            std::abs(*table->seconds(out.type, out.what, out.shape, size.bytes) / size.seconds - 1);
        own.add(error);
        if (size.bytes >= kLarge) own_large.add(error);
      }
      shapes.add(own.mean());
      shapes_large.add(own_large.mean());
      worst.emplace_back(own.mean(), name_of(std::get<0>(key), out));
    }
  std::sort(worst.rbegin(), worst.rend());
  std::printf(
      "one shape left out, %zu shapes: mean %.1f %%, median %.1f %%, p90 %.1f %%; from 1 MB on mean %.1f %%, median %.1f %%\n"
      "%d shapes have no other that stays within a node, or leaves it, as they do\n",
      shapes.all.size(), 100 * shapes.mean(), 100 * shapes.at(0.5), 100 * shapes.at(0.9),
      100 * shapes_large.mean(), 100 * shapes_large.at(0.5), alone);
  for (std::size_t i = 0; i < std::min<std::size_t>(worst.size(), 10); ++i)
    std::printf("  %5.0f %%  %s\n", 100 * worst[i].first, worst[i].second.c_str());
  std::printf(
      "{\"series\":%zu,\"sizes\":%zu,\"mean_abs_error\":%.4f,\"from_1mb\":%.4f,\"shapes\":%zu,\"shape_mean_abs_error\":%.4f,\"shape_median_abs_error\":%.4f}\n",
      measured->size(), any.all.size(), any.mean(), large.mean(), shapes.all.size(), shapes.mean(),
      shapes.at(0.5));
  return any.mean() <= 0.04 && large.mean() <= 0.02 ? 0 : 1;
}
