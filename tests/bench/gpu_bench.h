// SPDX-License-Identifier: GPL-2.0-or-later
// Functions shared by the benchmarks of GPUs, which exit at the first error.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "core/result.h"

namespace bench {

using Clock = std::chrono::steady_clock;
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Returns the seconds since `start`.
inline double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::exit(1);
}

template <typename T>
T must(swell::Result<T> result) {
  if (!result) die(result.error().message());
  return std::move(*result);
}
inline void must(const swell::Result<void>& result) {
  if (!result) die(result.error().message());
}

}  // namespace bench
