// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <cmath>

namespace swell::perf {

/// Equations of Suika's appendix A.2, one function each, so that each can be checked by hand. Where
/// the paper has a misprint, docs/performance-model.md derives the form used here. Times are in
/// seconds, sizes in bytes, bandwidths in bytes a second. All functions are pure.

/// T_TP-comp-fwd = k_comp * b * l / TP.
inline double tp_comp_fwd(double comp_s, double local_batch, double layers, double tp) noexcept {
  return comp_s * local_batch * layers / tp;
}

/// Returns the bytes that each GPU sends in one of a layer's two forward all-reduces: V' = k_activ
/// * b * 2(1 - 1/TP).
inline double tp_transmission_bytes(double activ_bytes, double local_batch, double tp) noexcept {
  return activ_bytes * local_batch * 2 * (1 - 1 / tp);
}

/// Returns the bandwidth of a message of V' bytes: linear in log2 V' up to the saturation size.
inline double tp_bandwidth(double link_bytes_per_s, double transmission_bytes,
                           double saturation_bytes) noexcept {
  const double share = std::log2(std::max(transmission_bytes, 2.0)) / std::log2(saturation_bytes);
  return link_bytes_per_s * std::min(share, 1.0);
}

/// T_TP-commu-fwd = V / bandwidth(V'), V = 2 l V': two all-reduces a layer; backward has as many.
inline double tp_commu_fwd(double activ_bytes, double local_batch, double layers, double tp,
                           double link_bytes_per_s, double saturation_bytes) noexcept {
  if (tp <= 1) return 0;
  const double once = tp_transmission_bytes(activ_bytes, local_batch, tp);
  return 2 * layers * once / tp_bandwidth(link_bytes_per_s, once, saturation_bytes);
}

/// Returns the seconds of a pass in the second model: the slower of device and launches, smoothed
/// if the two are close: sqrt(device^2 + launch^2).
inline double with_launches(double device, double launch) noexcept {
  return std::hypot(device, launch);
}

/// Returns the seconds of an all-reduce of V' bytes in the second model: a latency, plus V' at
/// three quarters of the link bandwidth, which NCCL typically reaches.
inline double allreduce_s(double transmission_bytes, double link_bytes_per_s) noexcept {
  return 40e-6 + transmission_bytes / (0.75 * link_bytes_per_s);
}

/// T_DP-commu = k_param * l * 2(1 - 1/DP) / bandwidth: the ring all-reduce of one stage's
/// gradients. `bandwidth`: from one whole TP group to its neighbours
/// (PerformanceModel::stage_bandwidth()).
inline double dp_commu(double param_bytes, double layers, double dp, double bandwidth) noexcept {
  if (dp <= 1) return 0;
  return param_bytes * layers * 2 * (1 - 1 / dp) / bandwidth;
}

/// T_DP-commu-extra = (bwd^k + commu^k)^(1/k) - bwd: the part of the synchronization that the
/// backward pass does not overlap. k = 1: all of it; k to infinity: max(commu - bwd, 0).
inline double dp_commu_extra(double bwd, double commu, double overlap) noexcept {
  if (commu <= 0) return 0;
  const double max = std::max(bwd, commu);  // factored out, since a large k would underflow
  return max * std::pow(1 + std::pow(std::min(bwd, commu) / max, overlap), 1 / overlap) - bwd;
}

/// Times of one stage in an iteration, in seconds.
struct StageTimes {
  double fwd = 0;  ///< T_DP-comp-fwd: the slowest group's forward pass of one micro-batch
  /// T_DP-comp-bwd: the same group's backward pass, without synchronization.
  double bwd = 0;
  double dp_commu = 0;     ///< T_DP-commu: gradient synchronization without any overlap
  double commu_extra = 0;  ///< T_DP-commu-extra: the part that is not overlapped
  double optim = 0;        ///< T_DP-optim: optimizer step
  /// Gathering of the parameters, of which each replica has updated a part (ZeRO-1). It overlaps
  /// with nothing.
  double gather = 0;
  double comp() const noexcept { return fwd + bwd; }
  double extra() const noexcept { return commu_extra + optim + gather; }
};

/// T_PP and its three parts, in seconds.
struct IterationTime {
  double warm_up = 0;
  double steady = 0;
  double extra = 0;
  double total() const noexcept { return warm_up + steady + extra; }
  IterationTime operator*(double factor) const noexcept {
    return {warm_up * factor, steady * factor, extra * factor};
  }
};

/// Adds up T_PP = T_warm-up + T_steady + T_extra under 1F1B, stage by stage from the first. Stage i
/// ends its last backward pass before stage 0 does, by the backward passes of the stages in front
/// of it; T_extra subtracts that time.
class PipelineSum {
 public:
  void add(const StageTimes& stage) noexcept {
    time_.warm_up += stage.comp();
    slowest_ = std::max(slowest_, stage.comp());
    time_.extra = std::max(time_.extra, stage.extra() - backward_in_front_);
    backward_in_front_ += stage.bwd;
  }
  IterationTime finish(double micro_batches) const noexcept {
    IterationTime time = time_;
    time.steady = (micro_batches - 1) * slowest_;
    return time;
  }

 private:
  IterationTime time_;
  double slowest_ = 0;
  double backward_in_front_ = 0;
};

}  // namespace swell::perf
