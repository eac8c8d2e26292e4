// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

#include "core/count_of.h"
#include "core/slurm_text/hostlist.h"
#include "tools/output.h"
#include "tools/text_table.h"
#include "tools/topo_cluster.h"

namespace swell::tools {

namespace {

using cluster::Fabric;
using cluster::Figure;
using cluster::GpuRef;
using cluster::LinkKind;

struct Gathered {
  long pairs = 0;
  double min = 0, max = 0, node_min = 0;
  std::set<std::string> figures, places;

  void add(Figure figure) {
    min = figures.empty() ? figure.bytes_per_s : std::min(min, figure.bytes_per_s);
    max = std::max(max, figure.bytes_per_s);
    figures.insert(to_text(figure.source));
  }
};

std::string listed(const std::set<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

int gpus_of(const cluster::FabricNode& node) {
  return node.gpus > 0 || !node.description ? node.gpus
                                            : static_cast<int>(node.description->gpus.size());
}

void add_links(const Fabric& fabric, std::vector<DistanceRow>& rows) {
  std::map<LinkKind, Gathered> kinds;
  for (int n = 0; n < fabric.size(); ++n) {
    const cluster::FabricNode& node = fabric.node(n);
    const int count = gpus_of(node),
              told = node.description ? static_cast<int>(node.description->gpus.size()) : 0;
    for (int a = 0; a < count; ++a)
      for (int b = a + 1; b < count; ++b) {
        Gathered& kind = kinds[b < told ? node.description->link(a, b).kind : LinkKind::unknown];
        ++kind.pairs;
        kind.add(fabric.bandwidth(GpuRef{n, a}, GpuRef{n, b}));
      }
  }
  for (const LinkKind kind : {LinkKind::nvlink, LinkKind::pcie, LinkKind::unknown})
    if (const auto found = kinds.find(kind); found != kinds.end())
      rows.push_back({fmt::format("same node, {}",
                                  kind == LinkKind::unknown ? "link not known" : to_text(kind)),
                      0, found->second.pairs, found->second.min, found->second.max, 0, 0,
                      listed(found->second.figures), ""});
}

long pairs_of(std::size_t count) {
  return static_cast<long>(count) * (static_cast<long>(count) - 1) / 2;
}

}  // namespace

std::vector<DistanceRow> distance_rows(const Fabric& fabric) {
  std::vector<DistanceRow> rows;
  add_links(fabric, rows);
  long nearer = 0;
  for (int distance = 1; distance <= fabric.levels() + 1; ++distance) {
    std::vector<std::vector<int>> groups;
    if (distance <= fabric.levels()) {
      groups = groups_of(fabric, distance);
    } else {
      groups.emplace_back();
      for (int n = 0; n < fabric.size(); ++n) groups[0].push_back(n);
    }
    Gathered all;
    long within = 0;
    for (std::vector<int>& nodes : groups) {
      within += pairs_of(nodes.size());
      // Sorts nodes by their group of the level below, so that neighbours of different groups are
      // at this distance.
      std::stable_sort(nodes.begin(), nodes.end(), [&](int a, int b) {
        return fabric.group(a, distance - 1) < fabric.group(b, distance - 1);
      });
      for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
        if (fabric.distance(nodes[i], nodes[i + 1]) != distance) continue;
        all.add(fabric.bandwidth(GpuRef{nodes[i], 0}, GpuRef{nodes[i + 1], 0}));
        const double node = fabric.bandwidth(nodes[i], nodes[i + 1]).bytes_per_s;
        all.node_min = all.node_min == 0 ? node : std::min(all.node_min, node);
        all.places.insert(to_text(fabric.distance_source(nodes[i], nodes[i + 1])));
      }
    }
    all.pairs = within - nearer;
    nearer = within;
    if (all.pairs == 0 || all.figures.empty()) continue;
    const cluster::MeasuredClass* measured = fabric.calibration().find(distance);
    rows.push_back({distance_name(fabric, distance), distance, all.pairs, all.min, all.max,
                    all.node_min, measured != nullptr ? measured->latency_s : 0,
                    listed(all.figures), listed(all.places)});
  }
  return rows;
}

std::string cluster_text(const Fabric& fabric, const std::vector<std::string>& notes) {
  int gpus = 0, told = 0;
  for (int n = 0; n < fabric.size(); ++n) {
    gpus += gpus_of(fabric.node(n));
    told += fabric.node(n).description ? 1 : 0;
  }
  std::string text =
      fmt::format("{}, {}; topology published by {}\n", count_of(fabric.size(), "node"),
                  count_of(gpus, "GPU"), count_of(told, "node"));
  if (!fabric.calibration().date.empty())
    text +=
        line_of("calibrated {} with {}\n", fabric.calibration().date, fabric.calibration().method);
  const auto gb = [](double rate) {
    return rate > 0 ? fmt::format("{:.4g}", rate / 1e9) : std::string("-");
  };
  using Align = TextTable::Align;
  TextTable table({{"CLASS"},
                   {"PAIRS", Align::right},
                   {"GPU-GPU GB/s", Align::right},
                   {"NODE-NODE GB/s", Align::right},
                   {"LATENCY us", Align::right},
                   {"FIGURES FROM"},
                   {"PLACES FROM"}});
  for (const DistanceRow& row : distance_rows(fabric))
    table.add({row.name, std::to_string(row.pairs),
               row.min == row.max ? gb(row.min) : gb(row.min) + "-" + gb(row.max), gb(row.node_min),
               row.latency_s > 0 ? fmt::format("{:.3g}", row.latency_s * 1e6) : "-",
               row.figures_from, row.places_from});
  text += table.text();
  for (int level = 1; level <= fabric.levels(); ++level)
    for (const std::vector<int>& nodes : groups_of(fabric, level)) {
      std::vector<std::string> names;
      for (const int node : nodes) names.push_back(fabric.node(node).name);
      text += line_of("level {}  {}: {}\n", level, fabric.group_name(fabric.group(nodes[0], level)),
                      slurm_text::fold_hostlist(names));
    }
  for (const std::string& note : notes) text += line_of("note: {}\n", note);
  return text;
}

Json cluster_json(const Fabric& fabric, const std::vector<std::string>& notes) {
  Json nodes = Json::array(), classes = Json::array();
  for (int n = 0; n < fabric.size(); ++n) {
    Json groups = Json::array();
    for (int level = 1; level <= fabric.levels(); ++level)
      groups.append(fabric.group_name(fabric.group(n, level)));
    Json node = Json::object(
        {{"name", fabric.node(n).name}, {"gpus", gpus_of(fabric.node(n))}, {"groups", groups}});
    if (fabric.node(n).description) node.set("published", fabric.node(n).description->to_json());
    nodes.append(node);
  }
  for (const DistanceRow& row : distance_rows(fabric))
    classes.append(Json::object({{"class", row.name},
                                 {"distance", row.distance},
                                 {"pairs", row.pairs},
                                 {"min_gbytes_per_s", row.min / 1e9},
                                 {"max_gbytes_per_s", row.max / 1e9},
                                 {"node_gbytes_per_s", row.node_min / 1e9},
                                 {"latency_us", row.latency_s * 1e6},
                                 {"figures_from", row.figures_from},
                                 {"places_from", row.places_from}}));
  return Json::object({{"levels", fabric.levels()},
                       {"classes", classes},
                       {"nodes", nodes},
                       {"notes", array_of(notes)}});
}

}  // namespace swell::tools
