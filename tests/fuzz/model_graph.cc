// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a model's graph: what is read has a chain with finite costs that add up to the
// graph's.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/cluster/presets.h"
#include "core/perf/roofline.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swell;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = Json::parse(text);
  if (!json) return 0;
  auto graph = models::graph_from_json(*json);
  if (!graph) return 0;
  double expanded = 0;
  for (const models::Repeat& one : graph->repeats) expanded += 1.0 * one.operators * one.times;
  if (expanded > 20000) return 0;  // only slow
  static const cluster::Cluster machines = cluster::preset("1x8-h100").value();
  const auto load = perf::roofline_load(machines.type(0), 1);
  const models::GraphChain chain = models::chain_of(*graph, load);
  if (chain.model.layers < 1 || !models::check(chain.model)) std::abort();
  const double parameters = chain.first.unit.parameters + chain.last.unit.parameters +
                            chain.model.layers * chain.layer.unit.parameters;
  if (std::abs(parameters - graph->parameters()) > 1e-6 * graph->parameters()) std::abort();
  if (models::cluster_operators(*graph, 4, load).size() > 4) std::abort();
  const auto k = perf::expected_coefficients(*graph, chain, machines, 1);
  if (!std::isfinite(k.types[0].comp_s) || !std::isfinite(k.head_layers)) std::abort();
  return 0;
}
