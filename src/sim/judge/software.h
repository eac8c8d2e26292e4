// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

namespace swell::sim::judge {

/// Constants of a training program's kernels and libraries, independent of model and GPU. Fitted
/// once to the published measurements that docs/prediction-accuracy.md names, which are not part of
/// this project. "All passes" means forward, its repetition, and backward, which counts twice.
struct Software {
  const char* name = "";
  // Matrix products.
  double product_share = 0.75;  ///< share of the GPU's peak that large products reach
  /// Exponent of occupancy: efficiency = occupancy ^ tile_exponent.
  double tile_exponent = 0.3;
  double attention_share = 0.75;  ///< share of peak that the products of attention reach
  double head_share = 0.7;        ///< share of peak that the output projection reaches
  // Memory traffic in addition to products, in bytes over all passes.
  /// For each attention score; 0: fused attention, which does not write scores.
  double score_bytes = 0;
  double whole_bytes = 80;  ///< for each element of the hidden state, on every GPU of a TP group
  double split_bytes = 40;  ///< for each element of the hidden state, divided among the group
  double logit_bytes = 60;  ///< for each logit, forward and backward
  double optimizer_bytes = 44;  ///< for each parameter updated
  // The host.
  double layer_launch_s = 0.75e-3;  ///< seconds to launch the kernels of one layer, all passes
  double head_launch_s = 0.75e-3;   ///< seconds for embedding, output projection and loss
  double update_launch_s = 1e-3;    ///< seconds for the optimizer's kernels
  /// Seconds of waiting for the last GPU in one step of a TP all-reduce.
  double step_wait_s = 12e-6;
  /// Exponent e of (device^e + host^e)^(1/e): how much host and device overlap.
  double limits_exponent = 2.3;
  // Gradients and state.
  /// Forward passes repeated before the backward one: 1 with full recomputation.
  double repeated_forward = 0;
  double gradient_bytes = 2;   ///< for each parameter sent
  double bucket_bytes = 25e6;  ///< size of the pieces in which gradients are sent
  /// Share of the gradients' traffic that may overlap the last backward pass.
  double overlapped_share = 0.7;
  /// For each parameter, including the optimizer's state, on every replica.
  double state_bytes = 6;
  double sharded_bytes = 0;  ///< for each parameter, divided among the replicas
  /// Each replica updates a part of the parameters, and gathers the others' (ZeRO-1).
  bool divides_updates = false;

  /// Returns the constants of transformer training with fused attention and without recomputation,
  /// as simulated jobs run it.
  static Software fused();
  /// Returns the constants of Megatron-DeepSpeed with full recomputation and unfused attention, as
  /// vTrain's authors measured it.
  static Software megatron_deepspeed();
  /// Returns the constants of PyTorch's FSDP with fused attention, as in MosaicML's published
  /// tables.
  static Software fsdp();
  /// Returns the constants of PyTorch's data parallelism, as ElasticFlow's authors profiled it.
  static Software data_parallel();
  /// Returns the constants of Alpa on JAX, as Arena's authors measured it.
  static Software alpa();
};

}  // namespace swell::sim::judge
