// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/redeploy/redeployment.h"

namespace swell::redeploy {

/// Ways in which Swell moved a PyTorch job from 4 workers to 8 and back on a real Slurm cluster,
/// without GPUs: DDP of 50 million parameters, processes of one machine (docs/frameworks.md).
enum class Measured { live, restart };

/// Returns what a way is in the model of cost_of().
constexpr Method method_of(Measured way) noexcept {
  return way == Measured::live ? Method::local_reuse : Method::checkpoint;
}

/// Cost of such a move where what was measured, which is all but the bytes of a larger state, takes
/// the place of kInitialize_s and of the pause in redeployment.cc. A live job that gives GPUs back
/// and needs no new process has no delay.
Cost measured_cost_of(Measured measured, const perf::Coefficients& coefficients,
                      const plan::Layout& from, const plan::Layout& to,
                      const cluster::Cluster& cluster, const Ranks& ranks = {});

}  // namespace swell::redeploy
