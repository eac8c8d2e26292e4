// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"
#include "core/redeploy/state_moves.h"

namespace swell::redeploy {

/// Way in which a system moves a job to another plan (Suika, section 5.3, Fig. 14b).
enum class Method {
  checkpoint,          ///< stop, write all state to shared storage, start anew, read it
  checkpoint_overlap,  ///< as checkpoint, but new workers start while the old ones train
  /// Overlapped start, state sent between devices through CPU memory (Tenplex).
  device_to_device,
  /// As device_to_device, but state that is on its GPU already is handed over there (Suika, Swell).
  local_reuse,
};

/// Cost of a redeployment, in seconds. `delay_s`: time until the pause begins (overlapped start),
/// in which the new GPUs are taken but do no work. `pause_s`: time in which training stands still.
struct Cost {
  double delay_s = 0;
  double pause_s = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
};

/// Seconds to start workers: processes, CUDA context, model build, NCCL communicators. Suika's Fig.
/// 10 shows it as a large part of a checkpoint-resume redeployment, without a figure; 25 s is the
/// shortest restart that we know Sia's authors to report (25 to 250 s by model), not checked
/// against their paper.
inline constexpr double kInitialize_s = 25;

/// Cost of moving a job from plan `from` to plan `to`: the time of the bytes that move over the
/// links of `cluster`, and of starting workers. The constants, with the paper's figure each is
/// from, stand in redeployment.cc. `ranks`: of the job's model.
Cost cost_of(Method method, const perf::Coefficients& coefficients, const plan::Layout& from,
             const plan::Layout& to, const cluster::Cluster& cluster, const Ranks& ranks = {});

/// A measured cost rests on the words of programs, so it is believed from the model's divided by
/// kMostUnder to the model's times kMostOver: neither is a change free, nor does one that is said
/// to be long keep lent GPUs.
inline constexpr double kMostUnder = 20, kMostOver = 10;
/// Returns `measured` within those bounds of `model`.
Cost within_model(const Cost& measured, const Cost& model);

}  // namespace swell::redeploy
