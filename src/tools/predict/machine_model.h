// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <vector>

#include "core/cluster/collectives.h"
#include "core/cluster/gpu_type.h"
#include "core/models/model_graph.h"
#include "tools/predict/training_run.h"

namespace swell::predict {

/// Six constants of a training machine and its software, independent of the model. Each has its
/// expected value before any measurement, and the uncertainty of that value (sigma of its
/// logarithm).
struct Machine {
  static constexpr std::size_t kCount = 6;
  enum Index : std::size_t {
    gemm_share,
    layer_launch_s,
    sync_s,
    head_factor,
    node_network,
    optimizer_bytes
  };
  std::array<double, kCount> value;

  struct Expected {
    const char* name;
    double value;
    double log_sigma;
  };
  static const std::array<Expected, kCount>& expected();
  static Machine expected_values();
};

/// Iteration time of one training run: Suika's pipeline composition (A.2) over layer times from the
/// roofline (perf/roofline.h), since the data have iteration times but no profile, which A.4 needs.
/// Also models two effects of these data that linear coefficients cannot: kernel launches limit
/// small micro-batches, and recomputation repeats the forward pass. docs/performance-model.md has
/// the derivation. Keeps references. Const.
class MachineModel {
 public:
  /// `measured`: times of all-reduces within a node. If it has none for `gpu`, the link gives the
  /// times (perf::allreduce_s()).
  MachineModel(const cluster::GpuType& gpu, const cluster::CollectiveTable& measured,
               int gpus_per_node = 8)
      : gpu_(gpu), measured_(measured), gpus_per_node_(gpus_per_node) {}

  /// Returns the iteration time in seconds. `scale`: factor on computation for this run's model.
  double iteration_s(const TrainingRun& run, const Machine& machine, double scale) const;

 private:
  /// Returns the forward seconds of one micro-batch on one GPU, without communication
  /// (perf/roofline.h).
  double forward_s(const std::vector<models::Operator>& operators, const TrainingRun& run,
                   const Machine& machine) const;
  double layer_s(const TrainingRun& run, const Machine& machine, double scale) const;
  double head_s(const TrainingRun& run, const Machine& machine, double scale) const;
  /// Returns the seconds of an all-reduce of `bytes` among `gpus` GPUs of one node.
  double allreduce_s(int gpus, double bytes) const;
  double tp_allreduce_s(const TrainingRun& run, const Machine& machine) const;
  double gradient_sync_s(const TrainingRun& run, const Machine& machine, double bytes) const;

  const cluster::GpuType& gpu_;
  const cluster::CollectiveTable& measured_;
  int gpus_per_node_;
};

}  // namespace swell::predict
