// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/redeploy/redeployment.h"

namespace swell::redeploy {

/// The two ways in which Swell was measured to move a PyTorch job from 4 workers to 8 and back on a
/// real Slurm cluster without GPUs: DDP of 50 million parameters, all processes on one machine
/// (docs/frameworks.md).
enum class Measured { live, restart };

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
