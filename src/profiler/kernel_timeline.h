// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::profiler {

/// A kernel as the device ran it, with times of the host's clock that start() was given.
struct Kernel {
  std::string name;
  std::uint32_t device = 0, stream = 0;
  std::int64_t began_ns = 0, ended_ns = 0;
};

/// Records every kernel of one step with CUPTI, which is opened on demand. With most drivers CUPTI
/// allows one subscriber in a process. If torch.profiler or another tool has subscribed, start()
/// returns an error, and the other tool is not disturbed. One thread at a time; one timeline in a
/// process.
class KernelTimeline {
 public:
  static constexpr std::size_t kMaxKernels = 100'000;
  /// Begins to record. Uses the first of `libraries` that is already loaded, otherwise the first
  /// that can be loaded. `now_ns`: time of the host's clock.
  Result<void> start(std::int64_t now_ns, const std::vector<std::string>& libraries = cupti());
  /// Stops recording; take() still returns kernels that are running now.
  void stop();
  /// Returns the kernels that have ended by now, and unsubscribes. Does not wait for the device.
  std::vector<Kernel> take();
  bool is_started() const noexcept { return subscriber_ != nullptr; }

  static std::vector<std::string> cupti() {
    return {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"};
  }

 private:
  struct Functions;
  std::shared_ptr<const Functions> functions_;
  void* subscriber_ = nullptr;
  std::int64_t shift_ns_ = 0;  ///< from CUPTI's clock to the host's clock
};

}  // namespace swell::profiler
