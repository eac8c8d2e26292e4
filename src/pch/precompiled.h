// SPDX-License-Identifier: BSD-3-Clause
// What half of all sources include, parsed once for all of them where configure was told
// --enable-pch. No file may count on it: a build without it must have every include that it needs
// (tests/contrib/includes_test.py).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
