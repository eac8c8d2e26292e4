// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/plan/migration.h"

namespace support {

using namespace swell;

/// Returns the expected byte of a tensor's element. Only tied tensors have the same bytes.
inline std::uint8_t known_byte(const std::string& name, std::int64_t element, std::uint64_t byte) {
  std::uint64_t x = std::hash<std::string>()(name == "tied" ? "t0" : name) ^
                    (static_cast<std::uint64_t>(element) * 8 + byte) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  return static_cast<std::uint8_t>(x * 0xbf58476d1ce4e5b9u >> 40);
}

/// Visits each byte of a part, with its offset in the part's memory and its expected value.
template <typename Visit>
void each_known_byte(const runtime::Entry& entry, Visit&& visit) {
  const auto size = static_cast<std::uint64_t>(runtime::bytes_of(entry.tensor.dtype));
  const runtime::Part all = runtime::Part::whole(entry.tensor.shape);
  for (const runtime::Box& box : boxes_of(entry.part))
    each_run(box, entry.part, all, [&](std::int64_t at, std::int64_t element, std::int64_t n) {
      for (std::int64_t k = 0; k < n; ++k)
        for (std::uint64_t byte = 0; byte < size; ++byte)
          visit(static_cast<std::uint64_t>(at + k) * size + byte,
                known_byte(entry.tensor.name, element + k, byte));
    });
}

}  // namespace support
