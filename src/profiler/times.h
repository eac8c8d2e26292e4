// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "core/perf/profile.h"
#include "profiler/span.h"

namespace swell::profiler {

/// Times of one rank, as perf::GroupObservation has them. Suika 3.1: full-spectrum profiling.
struct Times {
  double fwd_s = 0;          ///< of one micro-batch, TP communication included
  double fwd_commu_s = 0;    ///< of that, TP all-reduces
  double bwd_s = 0;          ///< of one micro-batch, TP communication included
  double optim_s = 0;        ///< of a step
  double commu_extra_s = 0;  ///< of a step: DP synchronization that no backward pass hides
  double head_fwd_s = 0;     ///< of fwd_s, output projection and loss
  double head_bwd_s = 0;     ///< of bwd_s, the same
  /// Part of bwd_s in passes that make the gradients of weights alone; 0: the schedule has none.
  double weights_s = 0;
  double layer_launch_s = 0;  ///< host seconds to launch a layer's forward pass; 0: host device
  double step_s = 0;          ///< from boundary to boundary
  double kept_bytes = 0;      ///< by which a micro-batch's forward pass raises what is allocated
  friend bool operator==(const Times&, const Times&) = default;
};

/// Times of one step. `micro_batches`: those with a forward pass.
struct StepTimes {
  Times times;
  int micro_batches = 0;
  std::vector<perf::NodeObservation> nodes{};  ///< over the micro-batches; empty: too many
};

/// Sums a step's regions by what the performance model wants; nothing where the step is not whole
/// or has no forward or no backward pass.
///  - Regions of one kind and one micro-batch add up; one within another of its kind counts once.
///  - A region of weights is a part of its micro-batch's backward pass, wherever it stands.
///  - Sends and receives within a pass are waits of the pipeline, not of the pass: taken out.
///  - Synchronization within a pass and on its stream (FSDP gathers parameters in both) is no part
///    of the pass, and hidden by nothing. Work that runs beside the passes counts as far as it lies
///    behind the last backward one.
std::optional<StepTimes> times_of(const Step& step);

/// How far apart two sets of steps are, as a part of the step: what its passes, optimizer and
/// synchronization changed by, or where that is more, what a part within a pass did. So much may a
/// prediction change; parts that are small may change as they like. step_s, layer_launch_s and
/// kept_bytes do not count.
double change_between(const Times& a, const Times& b, int micro_batches);

/// Gathers steps to windows, and says when they agree. One thread at a time.
class Stable {
 public:
  static constexpr int kWindowSteps = 5;      ///< steps whose medians make one set of Times
  static constexpr std::size_t kWindows = 3;  ///< that have to agree
  static constexpr double kChange = 0.02;     ///< Suika 3.1
  /// Windows after which times that do not settle are reported all the same: their medians.
  static constexpr std::size_t kMaxWindows = 10;
  /// Change of such medians that is worth another report.
  static constexpr double kUnsettledChange = 0.1;

  /// Steps of another number of micro-batches, as the last of an epoch, are left out; a window of
  /// them is another training.
  void add(const StepTimes& step);
  /// The last full window, or what was reported of times that do not settle; nothing before.
  const std::optional<Times>& latest() const noexcept { return latest_; }
  /// Nodes of the last full window; empty where steps have too many, or other ones each.
  const std::vector<perf::NodeObservation>& nodes() const noexcept { return nodes_; }
  bool is_stable() const noexcept { return is_stable_; }
  /// Once when the times have become stable, and again when they are stable and more than kChange
  /// from what was taken last. Where they do not settle, each kMaxWindows at most.
  std::optional<Times> take_report();
  int micro_batches() const noexcept { return micro_batches_; }

 private:
  void close_window();
  bool last_windows_agree() const;

  std::vector<Times> window_;
  std::vector<std::vector<perf::NodeObservation>> window_nodes_;  ///< of the same steps
  std::vector<perf::NodeObservation> nodes_;
  std::deque<Times> windows_;
  std::optional<Times> latest_, reported_;
  int micro_batches_ = 0;
  int others_ = 0;  ///< steps of another number of micro-batches, one after the other
  bool is_stable_ = false, is_new_ = false;
};

}  // namespace swell::profiler
