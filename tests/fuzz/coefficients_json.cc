// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as coefficients.
#include <cstdint>
#include <string_view>

#include <cstdlib>

#include "core/perf/coefficients.h"
#include "support/plans.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = swell::Json::parse(text);
  if (!json) return 0;
  static const auto cluster = support::mixed_nodes(2, 2);
  const auto read = swell::perf::coefficients_from_json(*json, cluster);
  if (!read) return 0;
  if (!swell::perf::coefficients_from_json(swell::perf::to_json(*read, cluster), cluster))
    std::abort();
  return 0;
}
