// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "profiler/nccl_sampler.h"
#include "profiler/times.h"

namespace swell::profiler {

/// Place of a rank in its plan, and facts of the model from its program.
struct Role {
  std::int32_t stage = 0, group = 0;  ///< indexes in Plan::stages and Stage::groups
  std::int32_t layers = 1;            ///< layers of this stage
  std::int32_t local_batch = 1;       ///< samples of a micro-batch that this group computes
  double activ_bytes = 0;             ///< size of the tensor between two stages, for one sample
  double whole_activations = 0;       ///< C_np of perf::Profile; 0: not known
  double last_activ_p_bytes = 0;      ///< the last stage's additional activations of one sample
  bool tied_embedding = false;
  /// Number of units in each chunk of this stage, like plan::Stage::chunks; one entry for a stage
  /// with one chunk. Empty: not known.
  std::vector<std::int32_t> chunks{};
};

/// Report of one rank once its times are stable: times, and the bytes of its registered state.
struct RankProfile {
  Role role;
  Times times;
  std::int32_t micro_batches = 0;
  // State that replicas hold in shards (FSDP, ZeRO) counts as a whole here, but not in the peak.
  double layer_param_bytes = 0;  ///< gradients of the model's layers
  double layer_state_bytes = 0;  ///< parameters and optimizer state of the model's layers
  double extra_param_bytes = 0;  ///< gradients of everything else
  double extra_state_bytes = 0;
  double sharded_state_bytes = 0;  ///< part of the state that replicas hold in shards
  double sharded_held_bytes = 0;   ///< bytes of this rank's shards
  double sharded_gradient_bytes = 0;
  double peak_bytes = 0;
  NcclFigures nccl;
  std::vector<perf::NodeObservation> nodes{};
};

inline constexpr std::size_t kMaxChunksSaid = 256;  ///< chunks of a stage that a role can list
inline constexpr std::size_t kMaxProfileBytes = 2048;
std::string write(const RankProfile& profile);
/// Writes the profile for older shims and launchers, which know no nodes, no shards and no separate
/// passes for gradients of weights: an older launcher refuses a report with an unknown part.
std::string write_for_older(const RankProfile& profile);
/// Reads a profile. Returns an error if the body is cut short or too long, or has a number that is
/// negative or not finite.
Result<RankProfile> read_rank_profile(std::string_view body);

}  // namespace swell::profiler
