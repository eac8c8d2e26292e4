// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/models/chain.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/perf/equations.h"
#include "core/perf/node_costs.h"
#include "core/perf/sends.h"
#include "core/plan/layout.h"

namespace swell::perf {

class PassTable;

/// Iteration time of any plan of one job: Suika, appendix A.2, with coefficients for each GPU type
/// and, on request, the sends between stages (sends.h). Computation that `costs` contains takes its
/// measured time; coefficients give all other times. Keeps references: model, cluster, coefficients
/// and costs must outlive it. Const, hence safe between threads.
class PerformanceModel {
 public:
  PerformanceModel(const models::Model& model, const cluster::Cluster& cluster,
                   const Coefficients& coefficients, Sends sends = Sends::ignored,
                   const NodeCosts* costs = nullptr) noexcept
      : model_(model),
        chain_(model),
        cluster_(cluster),
        coefficients_(coefficients),
        sends_(sends),
        costs_(costs) {}

  /// Position of a stage: the first and the last compute and hold more than their layers
  /// (embedding, output projection).
  struct Position {
    bool first = false, last = false;
  };
  /// Returns the times of one stage that holds `load`. REQUIRES: the layout was resolved against
  /// this cluster.
  StageTimes load_times(const plan::StageLayout& stage, const models::Load& load) const noexcept;
  /// Returns the times of one stage with one chunk.
  StageTimes stage_times(const plan::StageLayout& stage, Position position) const noexcept;
  StageTimes stage_times(const plan::StageLayout& stage) const noexcept {
    return stage_times(stage, Position{});
  }
  /// Returns T_PP and its parts. If the plan lists chunks or names a schedule, the whole time is
  /// returned as steady.
  IterationTime iteration_time(const plan::Layout& layout) const noexcept;
  /// Does the same with the passes of layers from `table`, which must be of this model.
  IterationTime iteration_time(const plan::Layout& layout, PassTable& table) const;
  /// Returns samples a second: the global batch over T_PP.
  double throughput(const plan::Layout& layout) const noexcept {
    return model_.global_batch / iteration_time(layout).total();
  }

  /// Seconds of the forward and the backward pass of one micro-batch.
  struct Passes {
    double fwd = 0, bwd = 0;
  };
  /// Returns the passes of one layer on a TP group with `local_batch` samples: by A.2, or by the
  /// second model if launches were observed.
  Passes layer_passes(int type, int tp, int local_batch) const noexcept;
  /// Returns the seconds of the TP all-reduces of one layer's forward pass; the backward pass has
  /// as many. `gpus`: number of GPUs of the group, StageLayout::tp.
  double layer_commu(int type, int gpus, int local_batch) const noexcept;
  /// Returns the passes of a chunk with `load` on the slowest group of `stage`.
  Passes chunk_passes(const plan::StageLayout& stage, const models::Load& load) const noexcept {
    const StageTimes times = load_times(stage, load);
    return {times.fwd, times.bwd};
  }
  /// Returns the bytes of gradients that one whole replica of a stage with `load` synchronizes.
  double gradient_bytes(const models::Load& load) const noexcept;
  /// Returns the forward plus backward seconds of one layer on a TP group with `local_batch`
  /// samples.
  double layer_time(int type, int tp, int local_batch) const noexcept;
  /// Returns the bandwidth in bytes a second of one TP group of the stage in the gradient ring, by
  /// the slowest pair of groups. Two groups of one node have `tp` links between them; groups on two
  /// nodes share the network cards of the stage's GPUs there.
  double stage_bandwidth(const plan::StageLayout& stage) const noexcept;

  const models::Model& model() const noexcept { return model_; }
  const models::Chain& chain() const noexcept { return chain_; }
  Sends sends() const noexcept { return sends_; }
  const cluster::Cluster& cluster() const noexcept { return cluster_; }
  const Coefficients& coefficients() const noexcept { return coefficients_; }

 private:
  /// Returns the seconds in which the replicas of a stage gather the parameters, of which each has
  /// updated a part.
  double gather_s(const plan::StageLayout& stage, const models::Load& load) const noexcept;
  models::Load load_of(const plan::StageLayout& stage, Position position) const noexcept {
    return chain_.stage(stage.layers, position.first, position.last);
  }
  template <typename PassesOf>
  StageTimes stage_times(const plan::StageLayout& stage, const models::Load& load,
                         const PassesOf& passes_of) const;
  template <typename PassesOf>
  IterationTime time_of(const plan::Layout& layout, const PassesOf& passes_of) const;
  template <typename PassesOf>
  IterationTime exact_time(const plan::Layout& layout, const PassesOf& passes_of) const;

  const models::Model& model_;
  models::Chain chain_;
  const cluster::Cluster& cluster_;
  const Coefficients& coefficients_;
  Sends sends_;
  const NodeCosts* costs_;  ///< null: no measured costs
};

}  // namespace swell::perf
