// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>

#include "core/cluster/cluster.h"
#include "core/perf/equations.h"
#include "core/plan/layout.h"

namespace swell::perf {

/// Whether a performance model counts the activations and gradients sent between stages. Suika's
/// appendix A.2 ignores them: over InfiniBand they are negligible. Over 10 Gbit/s a plan takes a
/// third longer than A.2 predicts.
enum class Sends { ignored, counted };

/// Returns the seconds until the last group of stage `to` has the activations of one micro-batch
/// from the groups of `from`. Each pair of groups sends the samples that both work on, all pairs at
/// the same time. `activ_bytes`: activations of one sample on one of `cp` ranks. Each rank sends
/// its own; between nodes the ranks share the network cards of their group. The gradients in the
/// other direction take as long.
double send_s(const plan::StageLayout& from, const plan::StageLayout& to, double activ_bytes,
              const cluster::Cluster& cluster, int cp = 1) noexcept;

/// Adds up T_PP as PipelineSum does, with sends. Under 1F1B stage i runs PP - 1 - i forward passes
/// ahead, so stages i to k together have k - i + 1 micro-batches in flight. One step takes at least
/// the mean, over any such run of stages, of their passes and of the sends between them in both
/// directions.
class SendingPipelineSum {
 public:
  /// Adds the next stage. `send`: seconds from the stage before it, 0 for the first.
  void add(const StageTimes& stage, double send) noexcept {
    const double back = in_front_;
    in_front_ += stage.bwd + send;
    time_.warm_up += stage.comp() + 2 * send;
    time_.extra = std::max(time_.extra, stage.extra() - back - send);
    double sum = 0;
    comp_[at_] = stage.comp();
    send_[at_] = 2 * send;
    for (int i = 0; i <= at_; ++i) {  // over the stages from at_ - i to at_
      sum += comp_[at_ - i] + (i > 0 ? send_[at_ - i + 1] : 0);
      period_ = std::max(period_, sum / (i + 1));
    }
    if (at_ + 1 < kMaxStages) ++at_;
  }
  IterationTime finish(double micro_batches) const noexcept {
    IterationTime time = time_;
    time.steady = (micro_batches - 1) * period_;
    return time;
  }

 private:
  static constexpr int kMaxStages = 128;  // a deeper pipeline overwrites the last entry
  std::array<double, kMaxStages> comp_, send_;
  int at_ = 0;
  IterationTime time_;
  double period_ = 0;
  double in_front_ = 0;
};

}  // namespace swell::perf
