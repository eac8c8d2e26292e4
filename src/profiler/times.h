// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "core/perf/profile.h"
#include "profiler/span.h"

namespace swell::profiler {

/// Times of one rank, as in perf::GroupObservation. Suika 3.1: full-spectrum profiling.
struct Times {
  double fwd_s = 0;          ///< forward pass of one micro-batch, TP communication included
  double fwd_commu_s = 0;    ///< part of fwd_s: TP all-reduces
  double bwd_s = 0;          ///< backward pass of one micro-batch, TP communication included
  double optim_s = 0;        ///< optimizer in a step
  double commu_extra_s = 0;  ///< DP synchronization in a step that does not overlap a backward pass
  double head_fwd_s = 0;     ///< part of fwd_s: output projection and loss
  double head_bwd_s = 0;     ///< part of bwd_s: output projection and loss
  /// Part of bwd_s: passes that compute only gradients of weights; 0: the schedule has none.
  double weights_s = 0;
  double layer_launch_s = 0;  ///< host seconds to launch a layer's forward pass; 0: host device
  double step_s = 0;          ///< time from boundary to boundary
  double kept_bytes = 0;      ///< allocated bytes that a micro-batch's forward pass adds
  friend bool operator==(const Times&, const Times&) = default;
};

/// Times of one step. `micro_batches`: number of micro-batches that have a forward pass.
struct StepTimes {
  Times times;
  int micro_batches = 0;
  std::vector<perf::NodeObservation>
      nodes{};  ///< sums over the micro-batches; empty: there are too many nodes
};

/// Sums a step's regions as the performance model needs them. Returns nothing if the step is
/// incomplete, or has no forward or no backward pass.
///  - Regions of one kind and one micro-batch add up; a region within another of its kind is not
///    counted again.
///  - A region of weights is part of its micro-batch's backward pass, at whatever time it runs.
///  - Sends and receives within a pass are waits of the pipeline, and are subtracted from the pass.
///  - Synchronization within a pass and on its stream (FSDP gathers parameters in both passes) is
///    not part of the pass, and counts as not overlapped. Work that runs beside the passes counts
///    only as far as it ends after the last backward pass.
std::optional<StepTimes> times_of(const Step& step);

/// Returns the difference between two sets of steps, as a fraction of the step time: the change of
/// passes, optimizer and synchronization, or the change of a part within a pass if that is larger.
/// A prediction can change by as much; small parts may change freely. step_s, layer_launch_s and
/// kept_bytes do not count.
double change_between(const Times& a, const Times& b, int micro_batches);

/// Collects steps in windows, and finds out when the windows agree. One thread at a time.
class Stable {
 public:
  static constexpr int kWindowSteps = 5;      ///< steps whose medians form one set of Times
  static constexpr std::size_t kWindows = 3;  ///< number of windows that must agree
  static constexpr double kChange = 0.02;     ///< Suika 3.1
  /// Number of windows after which the medians of unstable times are reported anyway.
  static constexpr std::size_t kMaxWindows = 10;
  /// Change of these medians that causes another report.
  static constexpr double kUnsettledChange = 0.1;

  /// Adds a step. Leaves out steps with another number of micro-batches, such as the last step of
  /// a generation; if a whole window has that number, the training has changed.
  void add(const StepTimes& step);
  /// Returns the last full window, or the last report of unstable times; nothing before the first
  /// window.
  const std::optional<Times>& latest() const noexcept { return latest_; }
  /// Returns the nodes of the last full window; empty if steps have too many nodes, or different
  /// ones.
  const std::vector<perf::NodeObservation>& nodes() const noexcept { return nodes_; }
  bool is_stable() const noexcept { return is_stable_; }
  /// Returns the times once when they have become stable, and again when they are stable and differ
  /// by more than kChange from those returned last. While they are not stable, returns medians at
  /// most once in kMaxWindows windows.
  std::optional<Times> take_report();
  int micro_batches() const noexcept { return micro_batches_; }

 private:
  void close_window();
  bool last_windows_agree() const;

  std::vector<Times> window_;
  std::vector<std::vector<perf::NodeObservation>> window_nodes_;  ///< nodes of the same steps
  std::vector<perf::NodeObservation> nodes_;
  std::deque<Times> windows_;
  std::optional<Times> latest_, reported_;
  int micro_batches_ = 0;
  int others_ = 0;  ///< consecutive steps with another number of micro-batches
  bool is_stable_ = false, is_new_ = false;
};

}  // namespace swell::profiler
