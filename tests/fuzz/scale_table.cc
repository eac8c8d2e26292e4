// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a scale table: what is read has sound figures, and reads back as it was written.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/planner/scale_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using swell::planner::NamedTable;
  const auto table = NamedTable::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!table) return table.error().message().empty() ? (std::abort(), 0) : 0;
  if (table->rows.empty()) std::abort();
  for (std::size_t i = 0; i < table->rows.size(); ++i) {
    const auto& row = table->rows[i];
    for (const double figure : {row.throughput, row.modelled, row.max_peak_bytes(),
                                table->speedup(i), table->modelled_speedup(i)})
      if (!(figure >= 0)) std::abort();
    if (i > 0 && row.gpus <= table->rows[i - 1].gpus) std::abort();
    if (table->at(row.gpus) != &row) std::abort();
  }
  const auto again = NamedTable::from_json(table->to_json());
  if (!again || again->rows.size() != table->rows.size()) std::abort();
  if (again->source != table->source || again->rows.back().plan != table->rows.back().plan)
    std::abort();
  return 0;
}
