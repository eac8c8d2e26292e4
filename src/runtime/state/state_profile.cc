// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/state_profile.h"

#include <algorithm>

namespace swell::runtime {

namespace {

/// Bytes of tensors: those that the rank holds; the whole tensors that the shards of replicas form
/// (different only if the rank holds a range of a block: FSDP, ZeRO); and both sums over sharded
/// tensors only.
struct Bytes {
  double held = 0, whole = 0, sharded_held = 0, sharded_whole = 0;
  void add(const Entry& entry) {
    const auto own = static_cast<double>(entry.bytes());
    const auto block = static_cast<double>(entry.part.block_elements());
    const auto elements = static_cast<double>(entry.part.elements());
    const bool is_sharded = elements > 0 && (entry.part.flat_begin > 0 || elements < block);
    const double all = is_sharded ? own / elements * block : own;
    held += own;
    whole += all;
    if (!is_sharded) return;
    sharded_held += own;
    sharded_whole += all;
  }
};

}  // namespace

profiler::RankProfile profile_of(const profiler::Role& role, const profiler::Times& times,
                                 int micro_batches, const std::vector<Entry>& entries,
                                 std::uint64_t peak_bytes) {
  profiler::RankProfile made;
  made.role = role;
  made.times = times;
  made.micro_batches = micro_batches;
  Bytes layer_parameters, extra_parameters, layer_gradients, extra_gradients;
  Bytes layer_state, extra_state;
  double all = 0;
  for (const Entry& entry : entries) {
    if (!entry.alias_of.empty()) continue;
    const bool in_layer = entry.tensor.layer >= 0;
    all += static_cast<double>(entry.bytes());
    switch (entry.tensor.kind) {
      case Kind::gradient: (in_layer ? layer_gradients : extra_gradients).add(entry); break;
      case Kind::parameter:
        (in_layer ? layer_parameters : extra_parameters).add(entry);
        [[fallthrough]];
      case Kind::moment:
      case Kind::step: (in_layer ? layer_state : extra_state).add(entry); break;
      default: break;
    }
  }
  // A program whose gradients are not needed at a boundary does not register them.
  if (layer_gradients.held + extra_gradients.held == 0) {
    layer_gradients = layer_parameters;
    extra_gradients = extra_parameters;
    all += layer_gradients.held + extra_gradients.held;
  }
  made.layer_param_bytes = layer_gradients.whole;
  made.extra_param_bytes = extra_gradients.whole;
  made.layer_state_bytes = layer_state.whole;
  made.extra_state_bytes = extra_state.whole;
  made.sharded_gradient_bytes = layer_gradients.sharded_whole + extra_gradients.sharded_whole;
  made.sharded_state_bytes = layer_state.sharded_whole + extra_state.sharded_whole;
  made.sharded_held_bytes = layer_state.sharded_held + extra_state.sharded_held;
  made.peak_bytes = std::max(all, static_cast<double>(peak_bytes));
  return made;
}

}  // namespace swell::runtime
