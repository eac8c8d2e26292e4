// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <vector>

#include "core/cluster/collectives.h"
#include "core/cluster/gpu_type.h"
#include "core/models/model_graph.h"
#include "tools/predict/training_run.h"

namespace swell::predict {

/// Constants of a training machine and its software, whatever the model: six, each with its
/// expected value before any measurement and the uncertainty of that (sigma of its logarithm).
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
/// roofline (perf/roofline.h), since iteration times alone come without the profile that A.4 needs.
/// Beside it counts what these data show and linear coefficients lack: small micro-batches are
/// bound by kernel launches, recomputation repeats the forward pass. Derived in
/// docs/performance-model.md. Keeps references. Const.
class MachineModel {
 public:
  /// `measured`: times of all-reduces within a node. Where it has none of `gpu`, they follow from
  /// the link (perf::allreduce_s()).
  MachineModel(const cluster::GpuType& gpu, const cluster::CollectiveTable& measured,
               int gpus_per_node = 8)
      : gpu_(gpu), measured_(measured), gpus_per_node_(gpus_per_node) {}

  /// Iteration time in seconds. `scale`: factor on computation for this run's model.
  double iteration_s(const TrainingRun& run, const Machine& machine, double scale) const;

 private:
  /// Forward seconds of one micro-batch on one GPU, without communication (perf/roofline.h).
  double forward_s(const std::vector<models::Operator>& operators, const TrainingRun& run,
                   const Machine& machine) const;
  double layer_s(const TrainingRun& run, const Machine& machine, double scale) const;
  double head_s(const TrainingRun& run, const Machine& machine, double scale) const;
  /// Seconds of an all-reduce of `bytes` among `gpus` GPUs of one node.
  double allreduce_s(int gpus, double bytes) const;
  double tp_allreduce_s(const TrainingRun& run, const Machine& machine) const;
  double gradient_sync_s(const TrainingRun& run, const Machine& machine, double bytes) const;

  const cluster::GpuType& gpu_;
  const cluster::CollectiveTable& measured_;
  int gpus_per_node_;
};

}  // namespace swell::predict
