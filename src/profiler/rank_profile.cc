// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/rank_profile.h"

#include <algorithm>
#include <cmath>

#include "base/byte_message.h"

namespace swell::profiler {

namespace {

/// Calls `each` for every number of a profile, for writing and for reading.
template <typename Profile, typename Each>
void each_number(Profile& profile, Each&& each) {
  for (auto* number : {&profile.role.activ_bytes,        &profile.role.whole_activations,
                       &profile.role.last_activ_p_bytes, &profile.times.fwd_s,
                       &profile.times.fwd_commu_s,       &profile.times.bwd_s,
                       &profile.times.optim_s,           &profile.times.commu_extra_s,
                       &profile.times.head_fwd_s,        &profile.times.head_bwd_s,
                       &profile.times.layer_launch_s,    &profile.times.step_s,
                       &profile.times.kept_bytes,        &profile.layer_param_bytes,
                       &profile.layer_state_bytes,       &profile.extra_param_bytes,
                       &profile.extra_state_bytes,       &profile.peak_bytes,
                       &profile.nccl.operations,         &profile.nccl.bytes,
                       &profile.nccl.device_s,           &profile.nccl.overhead})
    each(*number);
}

bool is_sharded(const RankProfile& profile) {
  return profile.sharded_state_bytes > 0 || profile.sharded_gradient_bytes > 0;
}

/// Reads the sharded bytes. Returns whether they are not larger than the totals.
bool read_sharded(ByteReader& reader, RankProfile& profile) {
  for (double* number : {&profile.sharded_state_bytes, &profile.sharded_held_bytes,
                         &profile.sharded_gradient_bytes}) {
    *number = reader.get<double>();
    if (!std::isfinite(*number) || *number < 0) return false;
  }
  constexpr double kRounding = 1 + 1e-9;
  return profile.sharded_held_bytes <= kRounding * profile.sharded_state_bytes &&
         profile.sharded_state_bytes <=
             kRounding * (profile.layer_state_bytes + profile.extra_state_bytes) &&
         profile.sharded_gradient_bytes <=
             kRounding * (profile.layer_param_bytes + profile.extra_param_bytes);
}

void read_nodes(ByteReader& reader, std::vector<perf::NodeObservation>& nodes) {
  const auto count = reader.get<std::uint8_t>();
  if (count > perf::kMaxNodes) reader.fail();
  for (int i = 0; i < count && reader.good(); ++i) {
    perf::NodeObservation& node = nodes.emplace_back();
    const auto pass = reader.get<std::uint8_t>();
    node.pass = static_cast<perf::NodePass>(pass);
    node.first_layer = reader.get<std::int32_t>();
    node.layers = reader.get<std::int32_t>();
    node.median_s = reader.get<float>();
    node.spread_s = reader.get<float>();
    node.bytes = reader.get<float>();
    if (pass >= perf::kNodePasses || node.first_layer < -1 || node.layers < 0 ||
        (node.first_layer < 0) != (node.layers == 0) || !(node.median_s >= 0) ||
        !(node.spread_s >= 0) || !std::isfinite(node.median_s + node.spread_s + node.bytes))
      reader.fail();
  }
}

}  // namespace

std::string write(const RankProfile& profile) {
  ByteWriter writer;
  writer.put(profile.role.stage)
      .put(profile.role.group)
      .put(profile.role.layers)
      .put(profile.role.local_batch)
      .put(profile.micro_batches);
  writer.put<std::uint8_t>(profile.role.tied_embedding);
  writer.put<std::int32_t>(profile.nccl.steps);
  each_number(profile, [&](double number) { writer.put(number); });
  // Older launchers read only this part; later ones also read chunks, if any; still later ones read
  // sharded bytes and nodes too.
  const bool says_more = !profile.nodes.empty() || is_sharded(profile);
  if (profile.role.chunks.empty() && profile.times.weights_s == 0 && !says_more)
    return writer.take();
  writer.put(static_cast<std::uint32_t>(profile.role.chunks.size()));
  for (const std::int32_t units : profile.role.chunks) writer.put(units);
  if (profile.times.weights_s > 0 || says_more) writer.put(profile.times.weights_s);
  if (!says_more) return writer.take();
  writer.put(profile.sharded_state_bytes)
      .put(profile.sharded_held_bytes)
      .put(profile.sharded_gradient_bytes);
  writer.put(static_cast<std::uint8_t>(profile.nodes.size()));
  for (const perf::NodeObservation& node : profile.nodes)
    writer.put(static_cast<std::uint8_t>(node.pass))
        .put(node.first_layer)
        .put(node.layers)
        .put(static_cast<float>(node.median_s))
        .put(static_cast<float>(node.spread_s))
        .put(static_cast<float>(node.bytes));
  return writer.take();
}

std::string write_for_older(const RankProfile& profile) {
  RankProfile brief = profile;
  brief.nodes.clear();
  brief.times.weights_s = 0;
  brief.sharded_state_bytes = brief.sharded_held_bytes = brief.sharded_gradient_bytes = 0;
  return write(brief);
}

Result<RankProfile> read_rank_profile(std::string_view body) {
  ByteReader reader(body);
  RankProfile profile;
  profile.role.stage = reader.get<std::int32_t>();
  profile.role.group = reader.get<std::int32_t>();
  profile.role.layers = reader.get<std::int32_t>();
  profile.role.local_batch = reader.get<std::int32_t>();
  profile.micro_batches = reader.get<std::int32_t>();
  const auto tied = reader.get<std::uint8_t>();
  profile.nccl.steps = reader.get<std::int32_t>();
  profile.role.tied_embedding = tied != 0;
  each_number(profile, [&](double& number) {
    number = reader.get<double>();
    if (!std::isfinite(number) || number < 0) reader.fail();
  });
  if (reader.good() && !reader.done()) {
    const std::uint32_t chunks = reader.count(sizeof(std::int32_t));
    if (chunks > kMaxChunksSaid) reader.fail();
    for (std::uint32_t i = 0; i < chunks && reader.good(); ++i) {
      profile.role.chunks.push_back(reader.get<std::int32_t>());
      if (profile.role.chunks.back() < 0) reader.fail();
    }
    const bool says_weights = reader.good() && !reader.done();
    if (says_weights) profile.times.weights_s = reader.get<double>();
    const double weights_s = profile.times.weights_s;
    const bool says_more = reader.good() && !reader.done();
    if (!std::isfinite(weights_s) || weights_s < 0 || weights_s > profile.times.bwd_s ||
        (weights_s == 0 && !says_more && (says_weights || chunks == 0)))
      reader.fail();
    if (says_more) {
      if (!read_sharded(reader, profile)) reader.fail();
      read_nodes(reader, profile.nodes);
      if (profile.nodes.empty() && !is_sharded(profile)) reader.fail();
    }
  }
  if (!reader.done() || tied > 1 || profile.role.stage < 0 || profile.role.group < 0 ||
      profile.role.layers < 1 || profile.role.local_batch < 1 || profile.micro_batches < 1 ||
      profile.nccl.steps < 0)
    return Error("a rank's profile cannot be read");
  return profile;
}

}  // namespace swell::profiler
