// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/models/model.h"
#include "core/result.h"

namespace swell::perf {

/// What one GPU type does with one job. Suika, Table 2, superscript (A).
struct TypeCoefficients {
  double comp_s = 0;    ///< k_comp: forward seconds of one layer and sample on one GPU
  double backward = 0;  ///< k_backward: backward over forward computation time
  double optim_s = 0;   ///< k_optim: optimizer seconds of one whole layer
  double overlap = 1;   ///< k_overlap: 1 is no overlap, the larger the more
  // Where launches were observed (docs/performance-model.md, "The second model"); A.2 has neither.
  /// Host seconds that launching one layer's forward pass takes; 0: never the limit.
  double launch_s = 0;
  double whole_s = 0;  ///< of one layer and sample's forward pass, what TP does not divide
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
  double activ_p_bytes = 0;      ///< k_activ-p: kept for backward, layer and sample, split by TP
  double activ_np_bytes = 0;     ///< k_activ-np: the same, held whole by every GPU
  StageExtras first;
  StageExtras last;
  /// Output projection and loss as so many layers' computation; 0: within the layers (A.2).
  double head_layers = 0;
  /// The last stage's parameters are the first's (tied embeddings), held once where one stage is
  /// both.
  bool tied_embedding = false;
  friend bool operator==(const Coefficients&, const Coefficients&) = default;
};

/// Gives every type that `have` did not see what A.4.2 says: k_comp and k_optim of the type `from`
/// scaled by the inverse of peak speed, k_backward and k_overlap as they are.
void extrapolate(Coefficients& coefficients, const std::vector<bool>& seen,
                 const cluster::Cluster& cluster);

/// Coefficients from the model's shape and the GPUs' data sheets alone, for a job that no profile
/// is there for yet: half of peak speed, no recomputation, Adam in bf16.
Coefficients expected_coefficients(const models::Model& model, const cluster::Cluster& cluster);

/// Adds to such coefficients what the second model asks for, as it usually is: 0.75 ms to launch a
/// layer's passes, norms that TP does not divide, and an output projection with its loss.
void expect_launches(Coefficients& coefficients, const models::Model& model,
                     const cluster::Cluster& cluster);

/// {"types": {"h100": {"comp_s", ...}}, "activ_bytes", ...}. Every type of the cluster must be
/// there.
Result<Coefficients> coefficients_from_json(const Json& json, const cluster::Cluster& cluster);
Json to_json(const Coefficients& coefficients, const cluster::Cluster& cluster);

}  // namespace swell::perf
