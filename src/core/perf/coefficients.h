// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/models/model.h"
#include "core/perf/measured_plans.h"
#include "core/result.h"

namespace swell::perf {

/// Constants of one GPU type for one job. Suika, Table 2, superscript (A).
struct TypeCoefficients {
  double comp_s = 0;    ///< k_comp: forward seconds of one layer and sample on one GPU
  double backward = 0;  ///< k_backward: backward over forward computation time
  double optim_s = 0;   ///< k_optim: optimizer seconds of one whole layer
  double overlap = 1;   ///< k_overlap: 1 means no overlap; larger values hide more
  // Terms of docs/performance-model.md, "The second model", for profiles with launch times; A.2
  // does not have them.
  /// Host seconds to launch one layer's forward pass; 0: launches are never the limit.
  double launch_s = 0;
  /// Part of the forward seconds of one layer and sample that TP does not divide.
  double whole_s = 0;
  /// Part of a backward pass that computes weight gradients, for schedules that delay them; 0: not
  /// observed.
  double weights_share = 0;
  friend bool operator==(const TypeCoefficients&, const TypeCoefficients&) = default;
};

/// Memory that the first or the last stage has in addition to its layers (embedding, output
/// projection). Bytes before division by the TP degree; activations are for one sample.
struct StageExtras {
  double param_bytes = 0;
  double param_optim_bytes = 0;
  double activ_p_bytes = 0;
  friend bool operator==(const StageExtras&, const StageExtras&) = default;
};

/// The performance model's constants for one job. Made by solve() from one profile, or by
/// expected_coefficients() before there is one; read by PerformanceModel.
struct Coefficients {
  std::vector<TypeCoefficients> types;  ///< indexed by Cluster's type index
  double activ_bytes = 0;               ///< k_activ: one activation of one sample
  double param_bytes = 0;               ///< k_param: gradients of one layer
  double param_optim_bytes = 0;  ///< k_param-optim: parameters and optimizer state of one layer
  /// k_activ-p: kept for the backward pass by one layer for one sample, split by TP.
  double activ_p_bytes = 0;
  double activ_np_bytes = 0;  ///< k_activ-np: kept in the same way, but whole on every GPU
  StageExtras first;
  StageExtras last;
  /// Computation of output projection and loss, in layers; 0: included in the layers (A.2).
  double head_layers = 0;
  /// Share of parameters and optimizer state, and of gradients, that is sharded over the replicas
  /// of a stage (FSDP, ZeRO); 0: each replica holds everything. All byte counts here are unsharded.
  double sharded_state = 0;
  double sharded_gradients = 0;
  int max_shards = 0;  ///< maximum number of shards (HSDP); 0: all replicas of a stage
  /// Returns the part of the state that each of `dp` replicas holds.
  double state_part(int dp) const noexcept { return part(sharded_state, dp); }
  /// Returns the part of the gradients that each of `dp` replicas holds between two passes.
  double gradient_part(int dp) const noexcept { return part(sharded_gradients, dp); }
  /// Returns the share of the parameters that is updated in parts (ZeRO-1): each replica updates
  /// one part, and gathers the other parts after the step. 0 with sharded gradients, whose
  /// synchronization includes gathering.
  double stepped_share() const noexcept {
    const double moments = param_optim_bytes - param_bytes;
    if (sharded_gradients > 0 || moments <= 0) return 0;
    return std::min(1.0, sharded_state * param_optim_bytes / moments);
  }
  /// Returns the part of a stage's parameters that each of `dp` replicas updates.
  double updated_part(int dp) const noexcept {
    return sharded_gradients > 0 ? state_part(dp) : part(stepped_share(), dp);
  }
  /// Tied embeddings: the last stage's extra parameters are the first's, and a stage that is both
  /// first and last holds them once.
  bool tied_embedding = false;
  /// Error injected by simulations: each plan's predicted time is multiplied by its own factor with
  /// this standard deviation, drawn from the seed and the plan's shape; 0: none.
  double plan_error = 0;
  std::uint64_t plan_error_seed = 0;
  MeasuredPlans measured;  ///< corrections by plans that the job ran
  friend bool operator==(const Coefficients&, const Coefficients&) = default;

 private:
  double part(double sharded, int dp) const noexcept {
    return 1 - sharded + sharded / (max_shards > 0 ? std::min(dp, max_shards) : dp);
  }
};

/// Sets the coefficients of every type that is not in `seen` by A.4.2: k_comp and k_optim of an
/// observed type, scaled by the inverse of peak speed; k_backward and k_overlap unchanged.
void extrapolate(Coefficients& coefficients, const std::vector<bool>& seen,
                 const cluster::Cluster& cluster);

/// Returns coefficients for a job without a profile, from the model's shape and the GPUs' data
/// sheets: the model's operators under the roofline (perf/roofline.h), without recomputation, with
/// Adam in bf16.
Coefficients expected_coefficients(const models::Model& model, const cluster::Cluster& cluster);

/// Changes expected_coefficients() to those of the second model: 0.75 ms to launch a layer's
/// passes, norms that TP does not divide, and an output projection with its loss.
void expect_launches(Coefficients& coefficients, const models::Model& model,
                     const cluster::Cluster& cluster);

/// Reads {"types": {"h100": {"comp_s", ...}}, "activ_bytes", ...}. Every type of the cluster must
/// be present.
Result<Coefficients> coefficients_from_json(const Json& json, const cluster::Cluster& cluster);
Json to_json(const Coefficients& coefficients, const cluster::Cluster& cluster);

}  // namespace swell::perf
