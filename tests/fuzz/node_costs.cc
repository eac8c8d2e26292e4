// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a table of units: it is refused, or what it says of any shard is finite, and so are
// coefficients that follow it.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/perf/performance_model.h"
#include "support/plans.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swell;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = Json::parse(text);
  if (!json) return 0;
  static const auto cluster = support::mixed_nodes(2, 2);
  static const auto model = support::small_model();
  const auto costs = perf::NodeCosts::from_json(*json, model, cluster);
  if (!costs) return 0;
  auto k = support::round_coefficients(2);
  costs->fit(k);
  const perf::PerformanceModel perf(model, cluster, k, perf::Sends::ignored, &*costs);
  for (const int samples : {1, 3, 1 << 20})
    for (const int tp : {1, 2})
      for (const int type : {0, 1}) {
        const double seconds = perf.layer_time(type, tp, samples);
        if (!std::isfinite(seconds) || !(seconds > 0)) std::abort();
      }
  return 0;
}
