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

/// Work of NCCL's kernels on the sampled steps, and the cost of sampling; averages over steps.
struct NcclFigures {
  int steps = 0;  ///< number of sampled steps; 0: libswell-nccl-profiler is not loaded
  double operations = 0, bytes = 0, device_s = 0;
  /// Median time of sampled steps relative to others, minus 1; 0 if they are shorter.
  double overhead = 0;
};

/// Lets libswell-nccl-profiler time NCCL's kernels on a few steps, if NCCL has loaded it. One
/// thread at a time.
class NcclSampler {
 public:
  static constexpr std::uint64_t kFirst = 8, kEvery = 10;  ///< counted from the first boundary
  static constexpr int kSteps = 5;

  explicit NcclSampler(std::string library = "libswell-nccl-profiler.so")
      : path_(std::move(library)) {}
  /// Marks a boundary at which step `next` begins. `also`: sample the step in any case.
  void begin_step(std::uint64_t next, bool also = false);
  /// Returns whether add() still needs steps, to find the cost of sampling.
  bool is_busy() const noexcept { return plugin_ != nullptr && !is_taken_; }
  bool was_sampled(std::uint64_t step) const { return sampled_.count(step) != 0; }
  /// Adds the duration of a step, sampled or not.
  void add(std::uint64_t step, double step_s);
  /// Returns true once, when the last sampled step is complete and its kernels are known.
  bool take_finished();
  NcclFigures figures() const;
  /// Returns the operations of the sampled steps that were enqueued within [from, to).
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
