// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/no_signals.h"
#include "core/result.h"

namespace swell::runtime {

/// Starts a thread that takes no signals, because the process expects them on its own threads.
/// Returns an error if no more threads can be started; throws nothing.
template <typename Body>
Result<std::thread> quiet_thread(Body body) {
  const NoSignals none;
  try {
    return std::thread(std::move(body));
  } catch (const std::exception& problem) {
    return Error(std::string("a thread cannot be started: ") + problem.what());
  }
}

/// Calls `body` with each number below `count`, each in its own thread, or in this one if no more
/// threads can be started. Returns when all calls have returned.
template <typename Body>
void all_at_once(std::size_t count, const Body& body) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto thread = quiet_thread([&body, i] { body(i); });
    if (thread) threads.push_back(std::move(*thread));
    else body(i);
  }
  for (std::thread& each : threads) each.join();
}

}  // namespace swell::runtime
