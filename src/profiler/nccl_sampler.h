// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "profiler/library.h"
#include "profiler/nccl/totals.h"

namespace swell::profiler {

/// Work of NCCL's kernels on the sampled steps, and the cost of sampling; averages of a step.
struct NcclFigures {
  int steps = 0;  ///< that were sampled; 0: libswell-nccl-profiler is not there
  double operations = 0, bytes = 0, device_s = 0;
  double overhead = 0;  ///< sampled steps' median time over the others', less 1; 0 where shorter
};

/// Lets libswell-nccl-profiler time NCCL's kernels on a few steps, if NCCL has loaded it. One
/// thread at a time.
class NcclSampler {
 public:
  static constexpr std::uint64_t kFirst = 8, kEvery = 10;  ///< steps since the first boundary
  static constexpr int kSteps = 5;

  explicit NcclSampler(std::string library = "libswell-nccl-profiler.so")
      : path_(std::move(library)) {}
  /// A boundary: step `next` begins. `also`: sample it in any case.
  void begin_step(std::uint64_t next, bool also = false);
  /// Whether steps are still to be given to add(), for what sampling costs.
  bool is_busy() const noexcept { return plugin_ != nullptr && !is_taken_; }
  bool was_sampled(std::uint64_t step) const { return sampled_.count(step) != 0; }
  /// Adds the duration of a step, sampled or not.
  void add(std::uint64_t step, double step_s);
  /// Once, when the last sampled step and the kernels of it have been seen.
  bool take_finished();
  NcclFigures figures() const;
  /// Operations of the sampled steps, enqueued within [from, to).
  std::vector<nccl::Operation> operations(std::int64_t from_ns, std::int64_t to_ns) const;

 private:
  void find();

  std::string path_;
  Library library_;
  const nccl::Sampling* plugin_ = nullptr;
  std::uint64_t boundaries_ = 0, finished_at_ = 0;
  int planned_ = 0;
  bool is_on_ = false, is_taken_ = false;
  std::set<std::uint64_t> sampled_;
  std::vector<double> sampled_s_, others_s_;
};

}  // namespace swell::profiler
