// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::profiler {

/// A kernel as the device ran it. Times by the host's clock that start() was given.
struct Kernel {
  std::string name;
  std::uint32_t device = 0, stream = 0;
  std::int64_t began_ns = 0, ended_ns = 0;
};

/// Every kernel of one step, by CUPTI, which is opened when it is asked for. CUPTI has one
/// subscriber in a process on most drivers: where torch.profiler or another tool is it, start()
/// says so, and what that tool does is not touched. One thread at a time; one timeline a process.
class KernelTimeline {
 public:
  static constexpr std::size_t kMaxKernels = 100'000;
  /// Begins to record. The first of `libraries` that is loaded already is
  /// taken, else the first that can be loaded; `now_ns` is the host's clock.
  Result<void> start(std::int64_t now_ns, const std::vector<std::string>& libraries = cupti());
  /// Records nothing more; kernels that are under way still come.
  void stop();
  /// The kernels that have ended by now, and an end to it. Waits for no device.
  std::vector<Kernel> take();
  bool is_started() const noexcept { return subscriber_ != nullptr; }

  static std::vector<std::string> cupti() {
    return {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"};
  }

 private:
  struct Functions;
  std::shared_ptr<const Functions> functions_;
  void* subscriber_ = nullptr;
  std::int64_t shift_ns_ = 0;  ///< from CUPTI's clock to the host's
};

}  // namespace swell::profiler
