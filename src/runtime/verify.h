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

/// Which function a checksum is by; on the wire where a request says whether it is to have one.
enum class Checksum : std::uint8_t {
  none = 0,
  xxhash = 1,
  words = 2,  ///< WordHash, where one of both ends is on a GPU; a shim without it says xxHash's
};

}  // namespace swell::runtime
