// SPDX-License-Identifier: GPL-2.0-or-later
// How many random cases a test tries.
#pragma once

#include <cstdlib>

namespace support {

/// A fifth of `all`; all of them if SWELL_ALL_CASES is set, as by `contrib/check --all`.
inline int random_cases(int all) {
  return std::getenv("SWELL_ALL_CASES") == nullptr ? all / 5 : all;
}

}  // namespace support
