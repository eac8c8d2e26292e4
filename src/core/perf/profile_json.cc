// SPDX-License-Identifier: BSD-3-Clause
#include "core/perf/profile_json.h"

#include "core/count_of.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>

namespace swell::perf {

namespace {

constexpr double kMaxValue = 1e18;  // maximum of any value in bytes or seconds
constexpr std::size_t kMaxGroups = 1 << 16;

struct Field {
  const char* key;
  double GroupObservation::*value;
};
constexpr Field kFields[] = {{"fwd_s", &GroupObservation::fwd_s},
                             {"fwd_commu_s", &GroupObservation::fwd_commu_s},
                             {"bwd_s", &GroupObservation::bwd_s},
                             {"optim_s", &GroupObservation::optim_s},
                             {"commu_extra_s", &GroupObservation::commu_extra_s},
                             {"head_fwd_s", &GroupObservation::head_fwd_s},
                             {"head_bwd_s", &GroupObservation::head_bwd_s},
                             {"layer_param_bytes", &GroupObservation::layer_param_bytes},
                             {"layer_state_bytes", &GroupObservation::layer_state_bytes},
                             {"extra_param_bytes", &GroupObservation::extra_param_bytes},
                             {"extra_state_bytes", &GroupObservation::extra_state_bytes},
                             {"peak_bytes", &GroupObservation::peak_bytes}};

constexpr const char* kPassNames[kNodePasses] = {"forward", "backward", "weights", "head-forward",
                                                 "head-backward"};

Json json_of(const NodeObservation& node) {
  Json json = Json::object({{"pass", name_of(node.pass)}});
  if (node.layers > 0) {
    json.set("first_layer", node.first_layer);
    json.set("layers", node.layers);
  }
  json.set("median_s", node.median_s);
  json.set("spread_s", node.spread_s);
  if (node.bytes != 0) json.set("bytes", node.bytes);
  return json;
}

Result<NodeObservation> read_node(const Json& json) {
  NodeObservation node;
  const auto pass = json.string_at("pass");
  if (!pass) return pass.error();
  const auto found = std::find(std::begin(kPassNames), std::end(kPassNames), *pass);
  if (found == std::end(kPassNames))
    return Error(fmt::format("\"pass\" is \"{}\"; it must be one of {}", *pass,
                             fmt::join(kPassNames, ", ")));
  node.pass = static_cast<NodePass>(found - std::begin(kPassNames));
  if (json.has("layers")) {
    const auto first = json.integer_at("first_layer", 0, kMaxGroups),
               layers = json.integer_at("layers", 1, kMaxGroups);
    if (!first) return first.error();
    if (!layers) return layers.error();
    node.first_layer = static_cast<std::int32_t>(*first);
    node.layers = static_cast<std::int32_t>(*layers);
  }
  const auto median = json.number_at("median_s", 0, kMaxValue),
             spread = json.number_at("spread_s", 0, kMaxValue);
  if (!median) return median.error();
  if (!spread) return spread.error();
  node.median_s = *median;
  node.spread_s = *spread;
  if (json.has("bytes")) {
    const auto bytes = json.number_at("bytes", -kMaxValue, kMaxValue);
    if (!bytes) return bytes.error();
    node.bytes = *bytes;
  }
  return node;
}

Result<void> read_nodes(const Json& json, std::vector<NodeObservation>& nodes) {
  if (!is_array(json) || json.size() > kMaxNodes)
    return Error(fmt::format("\"nodes\" must be a list of at most {}", kMaxNodes));
  for (const Json& item : json.items()) {
    auto node = read_node(item);
    if (!node) return node.error().while_doing(fmt::format("node {}", nodes.size()));
    nodes.push_back(*node);
  }
  return {};
}

Result<GroupObservation> read_group(const Json& json) {
  GroupObservation seen;
  const auto stage = json.integer_at("stage", 0, kMaxGroups),
             group = json.integer_at("group", 0, kMaxGroups);
  if (!stage) return stage.error();
  if (!group) return group.error();
  seen.stage = static_cast<int>(*stage);
  seen.group = static_cast<int>(*group);
  for (const Field& field : kFields) {
    const auto value = json.number_at(field.key, 0, kMaxValue);
    if (!value) return value.error();
    seen.*field.value = *value;
  }
  if (json.has("weights_s")) {
    const auto weights = json.number_at("weights_s", 0, kMaxValue);
    if (!weights) return weights.error();
    seen.weights_s = *weights;
  }
  if (json.has("nodes"))
    if (auto good = read_nodes(json.at("nodes"), seen.nodes); !good) return good.error();
  return seen;
}

/// Sets the GPU types that a plan leaves empty.
Result<void> name_types(plan::Plan& plan, const cluster::Cluster& cluster) {
  for (plan::Stage& stage : plan.stages)
    for (plan::TpGroup& group : stage.groups) {
      if (!group.gpu_type.empty()) continue;
      const auto node = cluster.find_node(group.node);
      if (!node)
        return Error(fmt::format("node \"{}\" is not in cluster {}", group.node, cluster.name()));
      const auto& gpus = cluster.node(*node).gpus;
      if (group.gpus.empty() || group.gpus.front() >= static_cast<int>(gpus.size()))
        return Error(fmt::format("node {}: the plan uses {} of its {}", group.node,
                                 group.gpus.empty() ? "none" : "another one than",
                                 count_of(gpus.size(), "GPU")));
      group.gpu_type = cluster.type(gpus[static_cast<std::size_t>(group.gpus.front())]).name;
    }
  return {};
}

}  // namespace

const char* name_of(NodePass pass) noexcept { return kPassNames[static_cast<std::size_t>(pass)]; }

Json to_json(const Profile& profile) {
  Json groups = Json::array();
  for (const GroupObservation& seen : profile.groups) {
    Json group = Json::object({{"stage", seen.stage}, {"group", seen.group}});
    for (const Field& field : kFields) group.set(field.key, seen.*field.value);
    if (seen.weights_s > 0) group.set("weights_s", seen.weights_s);
    if (!seen.nodes.empty()) {
      Json nodes = Json::array();
      for (const NodeObservation& node : seen.nodes) nodes.append(json_of(node));
      group.set("nodes", nodes);
    }
    groups.append(group);
  }
  Json json = Json::object({{"plan", profile.plan.to_json()},
                            {"groups", groups},
                            {"layer_launch_s", profile.layer_launch_s},
                            {"activ_bytes", profile.activ_bytes},
                            {"last_activ_p_bytes", profile.last_activ_p_bytes},
                            {"tied_embedding", profile.tied_embedding}});
  if (profile.whole_activations) json.set("whole_activations", *profile.whole_activations);
  if (profile.takes_chunks) json.set("takes_chunks", true);
  if (profile.sharded_state > 0) json.set("sharded_state", profile.sharded_state);
  if (profile.sharded_gradients > 0) json.set("sharded_gradients", profile.sharded_gradients);
  if (profile.max_shards > 0) json.set("max_shards", profile.max_shards);
  return json;
}

Result<Profile> profile_from_json(const Json& json, const cluster::Cluster& cluster) {
  if (!is_object(json)) return Error("a profile is a JSON object");
  Profile made;
  auto plan = plan::Plan::from_json(json.at("plan"));
  if (!plan) return plan.error().while_doing("\"plan\"");
  made.plan = std::move(*plan);
  if (auto named = name_types(made.plan, cluster); !named)
    return named.error().while_doing("\"plan\"");
  const Json groups = json.at("groups");
  if (!is_array(groups) || groups.size() > kMaxGroups)
    return Error(fmt::format("\"groups\" must be a list of at most {} observations", kMaxGroups));
  for (const Json& item : groups.items()) {
    auto seen = read_group(item);
    if (!seen) return seen.error().while_doing(fmt::format("observation {}", made.groups.size()));
    made.groups.push_back(*seen);
  }
  for (const auto& [key, value] : {std::pair{"layer_launch_s", &made.layer_launch_s},
                                   std::pair{"activ_bytes", &made.activ_bytes},
                                   std::pair{"last_activ_p_bytes", &made.last_activ_p_bytes}}) {
    const auto read = json.number_at(key, 0, kMaxValue);
    if (!read) return read.error();
    *value = *read;
  }
  if (json.has("whole_activations")) {
    const auto whole = json.number_at("whole_activations", 0, kMaxValue);
    if (!whole) return whole.error();
    made.whole_activations = *whole;
  }
  for (const auto& [key, value] : {std::pair{"sharded_state", &made.sharded_state},
                                   std::pair{"sharded_gradients", &made.sharded_gradients}})
    if (json.has(key)) {
      const auto share = json.number_at(key, 0, 1);
      if (!share) return share.error();
      *value = *share;
    }
  if (json.has("max_shards")) {
    const auto shards = json.integer_at("max_shards", 0, kMaxGroups);
    if (!shards) return shards.error();
    made.max_shards = static_cast<int>(*shards);
  }
  const auto tied = json.bool_at("tied_embedding");
  if (!tied) return tied.error();
  made.tied_embedding = *tied;
  if (json.has("takes_chunks")) {
    const auto takes = json.bool_at("takes_chunks");
    if (!takes) return takes.error();
    made.takes_chunks = *takes;
  }
  return made;
}

}  // namespace swell::perf
