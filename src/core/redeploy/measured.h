// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <string_view>

#include "core/redeploy/redeployment.h"

namespace swell::redeploy {

/// The two ways in which Swell was measured to move a PyTorch job from 4 workers to 8 and back on a
/// real Slurm cluster without GPUs: DDP of 50 million parameters, all processes on one machine
/// (docs/frameworks.md).
enum class Measured { live, restart };

/// Measured pause of one kind of change, without the time for the bytes of a larger state.
struct MeasuredPause {
  Measured way;
  bool grows;
  double pause_s;
  std::string_view source;
};

/// All pauses that are measured, one row for each kind of change.
inline constexpr std::array kMeasuredPauses = {
    MeasuredPause{Measured::live, true, 0.54, "tests/bench/frameworks, DDP, 2026-11-24"},
    MeasuredPause{Measured::live, false, 0.67, "tests/bench/frameworks, DDP, 2026-11-24"},
    MeasuredPause{Measured::restart, true, 33.7, "tests/bench/frameworks, DDP, 2026-11-24"},
    MeasuredPause{Measured::restart, false, 16.7, "tests/bench/frameworks, DDP, 2026-11-24"},
};

/// Returns the row of the table for this kind of change.
constexpr const MeasuredPause& measured_pause(Measured way, bool grows) noexcept {
  for (const MeasuredPause& row : kMeasuredPauses)
    if (row.way == way && row.grows == grows) return row;
  return kMeasuredPauses.front();
}
static_assert(
    [] {
      for (const Measured way : {Measured::live, Measured::restart})
        for (const bool grows : {false, true}) {
          const MeasuredPause& row = measured_pause(way, grows);
          if (row.way != way || row.grows != grows) return false;
        }
      return true;
    }(),
    "a kind of change has no row");

/// Returns the method of cost_of() that models this way.
constexpr Method method_of(Measured way) noexcept {
  return way == Measured::live ? Method::local_reuse : Method::checkpoint;
}

/// Returns the cost of a move in which the measured figures replace kInitialize_s and the pause of
/// redeployment.cc; only the bytes of a larger state are still modelled. A live job that gives GPUs
/// back and needs no new process has no delay.
Cost measured_cost_of(Measured measured, const perf::Coefficients& coefficients,
                      const plan::Layout& from, const plan::Layout& to,
                      const cluster::Cluster& cluster, const Ranks& ranks = {});

}  // namespace swell::redeploy
