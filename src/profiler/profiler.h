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

/// Watches one program: takes its regions, step by step, and says when there is news. The
/// recorder is of any thread, all else of one.
class Profiler {
 public:
  /// Steps without regions after a window of a stable profile. Then a window is taken: if it
  /// differs, steps are taken until the profile is stable again.
  static constexpr int kRestSteps = 45;

  struct Options {
    std::string trace;              ///< file; empty: no trace
    std::uint64_t trace_step = 10;  ///< of this program, from 1
    bool trace_kernels = false;     ///< by CUPTI
    int rank = 0;                   ///< in the trace's name
    Recorder::Clock clock = &Recorder::host_clock;
  };
  /// SWELL_TRACE, SWELL_TRACE_STEP, SWELL_TRACE_KERNELS; RANK or SLURM_PROCID, else the process id.
  static Options from_environment();

  explicit Profiler(Options options = from_environment());
  /// Writes a trace that is due.
  ~Profiler();

  Recorder& recorder() noexcept { return recorder_; }
  const Recorder& recorder() const noexcept { return recorder_; }
  /// A step is over; returns whether a profile is to be reported: it has become stable, or stable
  /// at other values, or NCCL's figures have come after one was.
  bool boundary(std::uint64_t step);
  /// Returns the last window of steps on which nothing was sampled or traced; nothing before.
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
  int rest_left_ = 0;                ///< steps of this rest, the next one included
  int taken_ = 0;                    ///< steps since the last rest whose times are known
  std::uint64_t traced_number_ = 0;  ///< of the program's steps
  std::uint64_t write_at_ = 0;       ///< the boundary; 0: no trace is due
  bool is_traced_ = false, has_reported_ = false, has_said_problem_ = false;
};

}  // namespace swell::profiler
