// SPDX-License-Identifier: BSD-3-Clause
// The JSON form of a cluster: {"name", "types": [...], "nodes": [{"name", "rack",
// "network_gbytes_per_s", "gpus": [{"type", "count"}], "groups": [...]}], "cross_rack_factor",
// "measured": [{"between": [a, b], "gbytes_per_s"}], "distance_classes": [{"share",
// "gbytes_per_s"}]}.
#include <fmt/format.h>

#include "core/cluster/cluster.h"

namespace swell::cluster {

namespace {

constexpr double GB = 1e9;
constexpr double kMaxRate = 1e9;  // maximum of any figure in TFLOPS, GB or GB/s

Result<double> optional_number(const Json& json, const char* key, double otherwise) {
  if (!json.has(key)) return otherwise;
  return json.number_at(key, 0, kMaxRate);
}

/// Reads a GPU type. A name alone selects the catalogue's entry; a figure that is given overrides
/// the catalogue's figure.
Result<GpuType> read_type(const Json& json) {
  auto name = json.string_at("name");
  if (!name) return name.error();
  GpuType type = find_gpu_type(*name).value_or(GpuType{});
  type.name = *name;
  const struct {
    const char* key;
    double GpuType::*field;
    double unit;
  } fields[] = {
      {"fp32_tflops", &GpuType::fp32_tflops, 1},
      {"fp16_tflops", &GpuType::fp16_tflops, 1},
      {"bf16_tflops", &GpuType::bf16_tflops, 1},
      {"fp8_tflops", &GpuType::fp8_tflops, 1},
      {"memory_gb", &GpuType::memory_bytes, GB},
      {"hbm_gbytes_per_s", &GpuType::hbm_bytes_per_s, GB},
      {"link_gbytes_per_s", &GpuType::link_bytes_per_s, GB},
      {"link_saturation_mb", &GpuType::link_saturation_bytes, 1e6},
  };
  for (const auto& field : fields) {
    auto value = optional_number(json, field.key, type.*field.field / field.unit);
    if (!value) return value.error().while_doing(fmt::format("GPU type {}", type.name));
    type.*field.field = *value * field.unit;
  }
  return type;
}

Result<int> type_index(std::vector<GpuType>& types, const std::string& name) {
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i].name == name) return static_cast<int>(i);
  const auto known = find_gpu_type(name);
  if (!known)
    return Error(fmt::format("GPU type \"{}\" is neither in \"types\" nor in the catalogue", name));
  types.push_back(*known);
  types.back().name = name;
  return static_cast<int>(types.size() - 1);
}

Result<Node> read_node(const Json& json, std::vector<GpuType>& types) {
  Node node;
  auto name = json.string_at("name");
  if (!name) return name.error();
  node.name = *name;
  if (json.has("rack")) {
    auto rack = json.integer_at("rack", 0, 1 << 20);
    if (!rack) return rack.error().while_doing("node " + node.name);
    node.rack = static_cast<int>(*rack);
  }
  auto network = json.number_at("network_gbytes_per_s", 0, kMaxRate);
  if (!network) return network.error().while_doing("node " + node.name);
  node.network_bytes_per_s = *network * GB;
  if (json.has("network_cards")) {
    auto cards = json.integer_at("network_cards", 1, 64);
    if (!cards) return cards.error().while_doing("node " + node.name);
    node.network_cards = static_cast<int>(*cards);
  }
  if (json.has("link_gbytes_per_s")) {
    auto link = json.number_at("link_gbytes_per_s", 0, kMaxRate);
    if (!link) return link.error().while_doing("node " + node.name);
    node.link_bytes_per_s = *link * GB;
  }
  for (const Json& part : json.at("gpus").items()) {
    auto type_name = part.string_at("type");
    if (!type_name) return type_name.error().while_doing("node " + node.name);
    auto count = part.integer_at("count", 1, kMaxGpusPerNode);
    if (!count) return count.error().while_doing("node " + node.name);
    auto type = type_index(types, *type_name);
    if (!type) return type.error().while_doing("node " + node.name);
    node.gpus.insert(node.gpus.end(), static_cast<std::size_t>(*count), *type);
  }
  return node;
}

Result<DistanceClasses> read_classes(const Json& json) {
  DistanceClasses classes;
  for (const Json& item : json.at("nodes").items()) {
    std::vector<int>& groups = classes.groups.emplace_back();
    for (const Json& group : item.at("groups").items()) {
      const auto value = json_integer_value(group.get());
      if (!is_integer(group) || value < -1 || value > 1 << 20)
        return Error(
            fmt::format("\"groups\" of a node must be whole numbers from -1 to {}", 1 << 20));
      groups.push_back(static_cast<int>(value));
    }
  }
  for (const Json& item : json.at("distance_classes").items()) {
    auto share = optional_number(item, "share", 1);
    if (!share) return share.error().while_doing("\"distance_classes\"");
    auto measured = optional_number(item, "gbytes_per_s", 0);
    if (!measured) return measured.error().while_doing("\"distance_classes\"");
    classes.share.push_back(*share);
    classes.measured_bytes_per_s.push_back(*measured * GB);
  }
  return classes;
}

}  // namespace

Result<Cluster> Cluster::from_json(const Json& json) {
  if (!is_object(json)) return Error("a cluster is a JSON object");
  std::string name = "cluster";
  if (json.has("name")) {
    auto given = json.string_at("name");
    if (!given) return given.error();
    name = *given;
  }
  std::vector<GpuType> types;
  for (const Json& item : json.at("types").items()) {
    auto type = read_type(item);
    if (!type) return type.error();
    types.push_back(*std::move(type));
  }
  std::vector<Node> nodes;
  for (const Json& item : json.at("nodes").items()) {
    auto node = read_node(item, types);
    if (!node) return node.error();
    nodes.push_back(*std::move(node));
  }
  Interconnect interconnect;
  if (json.has("cross_rack_factor")) {
    auto given = json.number_at("cross_rack_factor", 0, 1);
    if (!given) return given.error();
    interconnect.cross_rack_factor = *given;
  }
  for (const Json& item : json.at("measured").items()) {
    int ends[2] = {-1, -1};
    for (std::size_t side = 0; side < 2; ++side) {
      const Json end = item.at("between").at(side);
      for (std::size_t n = 0; is_string(end) && n < nodes.size(); ++n)
        if (nodes[n].name == json_string_value(end.get())) ends[side] = static_cast<int>(n);
      if (ends[side] < 0)
        return Error("\"measured\": \"between\" must name two nodes of the cluster");
    }
    auto bandwidth = item.number_at("gbytes_per_s", 0, kMaxRate);
    if (!bandwidth) return bandwidth.error().while_doing("\"measured\"");
    interconnect.measured[{ends[0], ends[1]}] = *bandwidth * GB;
  }
  if (json.has("devices_apart")) {
    const auto given = json.bool_at("devices_apart");
    if (!given) return given.error();
    interconnect.devices_apart = *given;
  }
  if (json.has("distance_classes")) {
    auto classes = read_classes(json);
    if (!classes) return classes.error();
    interconnect.classes = *std::move(classes);
  }
  return make(std::move(name), std::move(types), std::move(nodes), std::move(interconnect));
}

Json Cluster::to_json() const {
  const DistanceClasses& distances = interconnect_.classes;
  Json types = Json::array();
  for (std::size_t i = 0; i < types_.size(); ++i) {
    const GpuType& type = types_[i];
    // Skip a variant: the link_gbytes_per_s of its node describes it.
    if (*find_type(*this, type.name) != static_cast<int>(i)) continue;
    types.append(Json::object({{"name", type.name},
                               {"fp32_tflops", type.fp32_tflops},
                               {"fp16_tflops", type.fp16_tflops},
                               {"bf16_tflops", type.bf16_tflops},
                               {"fp8_tflops", type.fp8_tflops},
                               {"memory_gb", type.memory_bytes / GB},
                               {"hbm_gbytes_per_s", type.hbm_bytes_per_s / GB},
                               {"link_gbytes_per_s", type.link_bytes_per_s / GB},
                               {"link_saturation_mb", type.link_saturation_bytes / 1e6}}));
  }
  Json nodes = Json::array();
  for (const Node& node : nodes_) {
    Json gpus = Json::array();
    for (std::size_t first = 0; first < node.gpus.size();) {
      std::size_t end = first;
      while (end < node.gpus.size() && node.gpus[end] == node.gpus[first]) ++end;
      gpus.append(Json::object({{"type", type(node.gpus[first]).name}, {"count", end - first}}));
      first = end;
    }
    Json written = Json::object({{"name", node.name},
                                 {"rack", node.rack},
                                 {"network_gbytes_per_s", node.network_bytes_per_s / GB},
                                 {"gpus", gpus}});
    if (node.network_cards > 0) written.set("network_cards", node.network_cards);
    if (node.link_bytes_per_s > 0) written.set("link_gbytes_per_s", node.link_bytes_per_s / GB);
    if (!distances.share.empty()) written.set("groups", array_of(distances.groups[nodes.size()]));
    nodes.append(written);
  }
  Json measured = Json::array();
  for (const auto& [pair, bandwidth] : interconnect_.measured)
    measured.append(
        Json::object({{"between", Json::array({node(pair.first).name, node(pair.second).name})},
                      {"gbytes_per_s", bandwidth / GB}}));
  Json json = Json::object({{"name", name_},
                            {"types", types},
                            {"nodes", nodes},
                            {"cross_rack_factor", interconnect_.cross_rack_factor},
                            {"measured", measured}});
  if (!distances.share.empty()) {
    Json classes = Json::array();
    for (std::size_t i = 0; i < distances.share.size(); ++i)
      classes.append(Json::object({{"share", distances.share[i]},
                                   {"gbytes_per_s", distances.measured_bytes_per_s[i] / GB}}));
    json.set("distance_classes", classes);
  }
  if (interconnect_.devices_apart) json.set("devices_apart", true);
  return json;
}

}  // namespace swell::cluster
