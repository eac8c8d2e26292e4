// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a communication table, CSV or JSON: it is refused, or its times are finite and above
// 0.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/predict/collectives_csv.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = swell::predict::collective_table(text, "ib");
  if (!table) return 0;
  for (const auto& each : table->series())
    for (const int ranks : {each.shape.ranks_a_node, 2, 3}) {
      auto shape = each.shape;
      shape.ranks_a_node = ranks;
      if (shape.ranks() < 2) continue;
      const auto seconds = table->seconds(each.type, each.what, shape, 1e6);
      if (!seconds || !std::isfinite(*seconds) || !(*seconds > 0)) std::abort();
    }
  const auto again = swell::cluster::CollectiveTable::from_json(table->to_json());
  if (!again || again->series().size() != table->series().size()) std::abort();
  return 0;
}
