// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <functional>

namespace swell {

/// Does independent pieces of work, several at a time if it has threads for them. The core starts
/// no threads itself: its host passes an Executor (helpers.h), or none.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Calls `body` once with each number below `count`, on any thread, and returns when all calls
  /// have ended. Rethrows one of their exceptions. Thread-safe; `body` may call run() itself.
  virtual void run(std::size_t count, const std::function<void(std::size_t)>& body) = 0;
};

/// An executor without threads: does one piece of work after the other.
class InOrder final : public Executor {
 public:
  void run(std::size_t count, const std::function<void(std::size_t)>& body) override {
    for (std::size_t i = 0; i < count; ++i) body(i);
  }
};

}  // namespace swell
