// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "profiler/kernel_timeline.h"
#include "profiler/nccl_sampler.h"
#include "profiler/recorder.h"
#include "profiler/times.h"
#include "profiler/trace.h"

namespace swell::profiler {

/// Watches one program: takes its regions step by step, and reports changes. Any thread may use the
/// recorder; one thread uses all other functions.
class Profiler {
 public:
  /// Steps without regions after a window of a stable profile. Then one window is measured; if it
  /// differs, all steps are measured until the profile is stable again.
  static constexpr int kRestSteps = 45;

  struct Options {
    std::string trace;              ///< file name; empty: no trace
    std::uint64_t trace_step = 10;  ///< step of this program, from 1
    bool trace_kernels = false;     ///< trace kernels too, with CUPTI
    int rank = 0;                   ///< part of the trace's file name
    Recorder::Clock clock = &Recorder::host_clock;
  };
  /// Reads SWELL_TRACE, SWELL_TRACE_STEP and SWELL_TRACE_KERNELS. The rank is RANK or SLURM_PROCID,
  /// otherwise the process id.
  static Options from_environment();

  explicit Profiler(Options options = from_environment());
  /// Writes a pending trace.
  ~Profiler();

  Recorder& recorder() noexcept { return recorder_; }
  const Recorder& recorder() const noexcept { return recorder_; }
  /// Marks the end of a step. Returns whether a profile must be reported: it has become stable, or
  /// stable at other values, or NCCL's figures have arrived after the report.
  bool boundary(std::uint64_t step);
  /// Returns the last window of steps without sampling or tracing; nothing before the first one.
  const std::optional<Times>& latest() const noexcept { return stable_.latest(); }
  /// Returns the nodes of the same steps.
  const std::vector<perf::NodeObservation>& nodes() const noexcept { return stable_.nodes(); }
  bool is_stable() const noexcept { return stable_.is_stable(); }
  int micro_batches() const noexcept { return stable_.micro_batches(); }
  NcclFigures nccl() const { return sampler_.figures(); }

 private:
  bool next_step_rests();
  void begin_trace();
  void write_trace();

  const Options options_;
  Recorder recorder_;
  Stable stable_;
  NcclSampler sampler_;
  KernelTimeline timeline_;
  TracedStep traced_;
  std::uint64_t boundaries_ = 0;
  int rest_left_ = 0;                ///< remaining steps of this rest, including the next one
  int taken_ = 0;                    ///< steps with known times since the last rest
  std::uint64_t traced_number_ = 0;  ///< number of the program's step
  std::uint64_t write_at_ = 0;       ///< boundary at which the trace is written; 0: none is pending
  bool is_traced_ = false, has_reported_ = false, has_said_problem_ = false;
};

}  // namespace swell::profiler
