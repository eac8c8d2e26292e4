// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace swell::redeploy {

/// How a system moves a job to another plan (Suika, section 5.3, Fig. 14b).
enum class Method {
  checkpoint,          ///< stop, write all state to shared storage, start anew, read it
  checkpoint_overlap,  ///< the same, new workers initialized while the old ones train
  device_to_device,    ///< initialization overlapped, state sent between devices through CPU memory
                       ///< (Tenplex)
  local_reuse,  ///< the same, and state that is on its GPU already is handed over there (Suika,
                ///< Swell)
};

/// What a redeployment costs. `pause_s`: training stands still. `delay_s`: until the pause begins
/// (overlapped initialization); the new GPUs are taken but do no work.
struct Cost {
  double delay_s = 0;
  double pause_s = 0;
};

/// Starting workers: processes, CUDA context, model build, NCCL communicators. Suika's Fig. 10
/// shows it as a large part of a checkpoint-resume redeployment, without a figure; 25 s is the
/// least restart that we know Sia's authors to report (25 to 250 s by model), not checked against
/// their paper.
inline constexpr double kInitialize_s = 25;

/// From the bytes that move over the links of `cluster` and the time to initialize workers. The
/// constants, with the paper's figure each is from, stand in redeployment.cc.
Cost cost_of(Method method, const perf::Coefficients& coefficients, const plan::Layout& from,
             const plan::Layout& to, const cluster::Cluster& cluster);

}  // namespace swell::redeploy
