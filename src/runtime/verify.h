// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace swell::runtime {

/// Which state of a switch is compared with its source by checksum once it has moved.
enum class Verify : std::uint8_t {
  none = 0,
  all = 1,
  network = 2,  ///< what comes from another host
};

}  // namespace swell::runtime
