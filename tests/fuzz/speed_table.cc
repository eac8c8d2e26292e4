// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a table of speeds, as a file or as it is sent: it is refused, or its speeds are
// finite and above 0, and its text is short and read back as it was written.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "control/speed_table.h"

namespace {

void check(const swell::control::SpeedTable& table) {
  using swell::control::SpeedTable;
  const std::string text = table.text();
  if (text.size() > SpeedTable::kMaxText || text.find_first_of(" []\n") != std::string::npos)
    std::abort();
  const auto again = SpeedTable::parse(text);
  if (!again || again->text() != text) std::abort();
  for (const SpeedTable::Row& row : table.rows)
    for (const int gpus : {row.gpus, row.gpus + 1}) {
      const auto speed = table.speed(row.type, gpus);
      if (!speed || !std::isfinite(*speed) || !(*speed > 0)) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using swell::control::SpeedTable;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto sent = SpeedTable::parse(text)) {
    // Text that was sent may be shorter than text() writes it.
    if (sent->text().size() <= SpeedTable::kMaxText) check(*sent);
  }
  if (const auto file = SpeedTable::from_json(text)) check(*file);
  return 0;
}
