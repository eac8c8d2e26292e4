// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace swell::runtime {

/// Which state of a switch is compared with its source by checksum after it has moved.
enum class Verify : std::uint8_t {
  none = 0,
  all = 1,
  network = 2,  ///< only what comes from another host
};

/// The function of a checksum; in messages, requests say which one they want, if any.
enum class Checksum : std::uint8_t {
  none = 0,
  xxhash = 1,
  words = 2,  ///< WordHash, used if one of both ends is on a GPU; a shim that does not know it
              ///< answers with xxHash's
};

}  // namespace swell::runtime
