// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/models/model.h"
#include "core/result.h"

namespace swell::perf {

/// Constants of one GPU type for one job. Suika, Table 2, superscript (A).
struct TypeCoefficients {
  double comp_s = 0;    ///< k_comp: forward seconds of one layer and sample on one GPU
  double backward = 0;  ///< k_backward: backward over forward computation time
  double optim_s = 0;   ///< k_optim: optimizer seconds of one whole layer
  double overlap = 1;   ///< k_overlap: 1 is no overlap; larger values hide more
  // Terms of docs/performance-model.md, "The second model", where launches were observed; A.2 has
  // neither.
  /// Host seconds that launching one layer's forward pass takes; 0: never the limit.
  double launch_s = 0;
  /// Part of the forward seconds of one layer and sample that TP does not divide.
  double whole_s = 0;
  /// Part of a backward pass that makes the gradients of weights, where schedules put it off; 0:
  /// not seen.
  double weights_share = 0;
  friend bool operator==(const TypeCoefficients&, const TypeCoefficients&) = default;
};

/// Memory that the first or the last stage has on top of its layers (embedding, output
/// projection). Bytes before division by the TP degree; activations for one sample.
struct StageExtras {
  double param_bytes = 0;
  double param_optim_bytes = 0;
  double activ_p_bytes = 0;
  friend bool operator==(const StageExtras&, const StageExtras&) = default;
};

/// The performance model's constants for one job. Made by solve() from one profile, or by
/// expected_coefficients() before there is one; read by PerformanceModel.
struct Coefficients {
  std::vector<TypeCoefficients> types;  ///< by Cluster's type index
  double activ_bytes = 0;               ///< k_activ: one activation of one sample
  double param_bytes = 0;               ///< k_param: gradients of one layer
  double param_optim_bytes = 0;  ///< k_param-optim: parameters and optimizer state of one layer
  /// k_activ-p: kept for backward by one layer for one sample, split by TP.
  double activ_p_bytes = 0;
  double activ_np_bytes = 0;  ///< k_activ-np: kept likewise, but whole on every GPU
  StageExtras first;
  StageExtras last;
  /// Computation of output projection and loss, in layers; 0: counted within the layers (A.2).
  double head_layers = 0;
  /// Share of parameters and optimizer state, and of gradients, that the replicas of a stage divide
  /// among themselves (FSDP, ZeRO). All bytes here are whole. 0: each replica holds all.
  double sharded_state = 0;
  double sharded_gradients = 0;
  int max_shards = 0;  ///< replicas that divide them at most (HSDP); 0: all of a stage
  /// Part of the state that each of `dp` replicas holds.
  double state_part(int dp) const noexcept { return part(sharded_state, dp); }
  /// Part of the gradients that each of `dp` replicas holds between two passes.
  double gradient_part(int dp) const noexcept { return part(sharded_gradients, dp); }
  /// Tied embeddings: the last stage's extra parameters are the first's, held once where one stage
  /// is both.
  bool tied_embedding = false;
  /// Injected by simulations: each plan's predicted time is off by a factor of its own, with this
  /// standard deviation, drawn from the seed and the plan's shape; 0: none.
  double plan_error = 0;
  std::uint64_t plan_error_seed = 0;
  friend bool operator==(const Coefficients&, const Coefficients&) = default;

 private:
  double part(double sharded, int dp) const noexcept {
    return 1 - sharded + sharded / (max_shards > 0 ? std::min(dp, max_shards) : dp);
  }
};

/// Gives every type that is not in `seen` what A.4.2 says: k_comp and k_optim of the type that was
/// seen, scaled by the inverse of peak speed; k_backward and k_overlap as they are.
void extrapolate(Coefficients& coefficients, const std::vector<bool>& seen,
                 const cluster::Cluster& cluster);

/// Coefficients from the model's shape and the GPUs' data sheets alone, for a job without a
/// profile: the model's operators under the roofline (perf/roofline.h), no recomputation, Adam in
/// bf16.
Coefficients expected_coefficients(const models::Model& model, const cluster::Cluster& cluster);

/// Makes expected_coefficients() those of the second model: 0.75 ms to launch a layer's passes,
/// norms that TP does not divide, and an output projection with its loss.
void expect_launches(Coefficients& coefficients, const models::Model& model,
                     const cluster::Cluster& cluster);

/// Reads {"types": {"h100": {"comp_s", ...}}, "activ_bytes", ...}; every type of the cluster must
/// be there.
Result<Coefficients> coefficients_from_json(const Json& json, const cluster::Cluster& cluster);
Json to_json(const Coefficients& coefficients, const cluster::Cluster& cluster);

}  // namespace swell::perf
