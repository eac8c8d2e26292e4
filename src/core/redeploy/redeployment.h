// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"
#include "core/redeploy/state_moves.h"

namespace swell::redeploy {

/// Method by which a system moves a job to another plan (Suika, section 5.3, Fig. 14b).
enum class Method {
  checkpoint,          ///< stop, write all state to shared storage, restart, read it
  checkpoint_overlap,  ///< like checkpoint, but new workers start while old ones train
  /// Overlapped start; state is sent between devices through CPU memory (Tenplex).
  device_to_device,
  /// Like device_to_device, but state that is already on its GPU is handed over there (Suika,
  /// Swell).
  local_reuse,
};

/// Cost of a redeployment, in seconds. `delay_s`: time until the pause begins (overlapped start);
/// the new GPUs are allocated but idle during this time. `pause_s`: time without training.
struct Cost {
  double delay_s = 0;
  double pause_s = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};

/// Seconds to start workers: processes, CUDA context, model build, NCCL communicators. In Suika's
/// Fig. 10 this is a large part of a checkpoint-resume redeployment, without a figure. 25 s is the
/// shortest restart in a report attributed to Sia's authors (25 to 250 s by model), not checked
/// against their paper.
inline constexpr double kInitialize_s = 25;

/// Returns the cost of moving a job from plan `from` to plan `to`: the time to move the bytes over
/// the links of `cluster`, and to start workers. redeployment.cc has the constants and their
/// sources. `ranks`: of the job's model.
Cost cost_of(Method method, const perf::Coefficients& coefficients, const plan::Layout& from,
             const plan::Layout& to, const cluster::Cluster& cluster, const Ranks& ranks = {});

/// A measured cost is reported by programs and may be wrong, so it is limited to the range from the
/// model's value / kMostUnder to the model's value * kMostOver. A change is then never free, and a
/// change reported as very long does not keep lent GPUs.
inline constexpr double kMostUnder = 20, kMostOver = 10;
/// Returns `measured`, limited to this range around `model`.
Cost within_model(const Cost& measured, const Cost& model);

}  // namespace swell::redeploy
