// SPDX-License-Identifier: GPL-2.0-or-later
#include <fmt/format.h>

#include "core/perf/coefficients.h"

namespace swell::perf {

namespace {

constexpr double kMaxValue = 1e18;  // maximum of any value in bytes or seconds
constexpr long kMaxShards = 1 << 16;

struct Field {
  const char* key;
  double* value;
  double min;
};

Result<void> read(const Json& json, std::initializer_list<Field> fields) {
  for (const Field& field : fields) {
    auto value = json.number_at(field.key, field.min, kMaxValue);
    if (!value) return value.error();
    *field.value = *value;
  }
  return {};
}

Result<void> read_extras(const Json& json, const char* key, StageExtras& extras) {
  if (!json.has(key)) return {};
  auto good = read(json.at(key), {{"param_bytes", &extras.param_bytes, 0},
                                  {"param_optim_bytes", &extras.param_optim_bytes, 0},
                                  {"activ_p_bytes", &extras.activ_p_bytes, 0}});
  if (!good) return good.error().while_doing(fmt::format("\"{}\"", key));
  return {};
}

Json extras_json(const StageExtras& extras) {
  return Json::object({{"param_bytes", extras.param_bytes},
                       {"param_optim_bytes", extras.param_optim_bytes},
                       {"activ_p_bytes", extras.activ_p_bytes}});
}

}  // namespace

Result<Coefficients> coefficients_from_json(const Json& json, const cluster::Cluster& cluster) {
  if (!is_object(json)) return Error("coefficients are a JSON object");
  Coefficients made;
  const Json types = json.at("types");
  for (const cluster::GpuType& type : cluster.types()) {
    if (!types.has(type.name.c_str()))
      return Error(
          fmt::format("\"types\" has no GPU type \"{}\", which the cluster has", type.name));
    TypeCoefficients read_type;
    auto good = read(types.at(type.name.c_str()), {{"comp_s", &read_type.comp_s, 1e-15},
                                                   {"backward", &read_type.backward, 1e-6},
                                                   {"optim_s", &read_type.optim_s, 0},
                                                   {"overlap", &read_type.overlap, 1}});
    if (!good) return good.error().while_doing(fmt::format("GPU type {}", type.name));
    for (auto [key, value] :
         {std::pair{"launch_s", &read_type.launch_s}, std::pair{"whole_s", &read_type.whole_s},
          std::pair{"weights_share", &read_type.weights_share}})
      if (types.at(type.name.c_str()).has(key))
        if (auto given = read(types.at(type.name.c_str()), {{key, value, 0}}); !given)
          return given.error().while_doing(fmt::format("GPU type {}", type.name));
    if (read_type.weights_share >= 1)
      return Error(fmt::format("GPU type {}: weights_share is {:g}; it must be below 1", type.name,
                               read_type.weights_share));
    made.types.push_back(read_type);
  }
  auto good = read(json, {{"activ_bytes", &made.activ_bytes, 1},
                          {"param_bytes", &made.param_bytes, 0},
                          {"param_optim_bytes", &made.param_optim_bytes, 0},
                          {"activ_p_bytes", &made.activ_p_bytes, 0},
                          {"activ_np_bytes", &made.activ_np_bytes, 0}});
  if (!good) return good.error();
  for (auto [key, value] : {std::pair{"head_layers", &made.head_layers},
                            std::pair{"sharded_state", &made.sharded_state},
                            std::pair{"sharded_gradients", &made.sharded_gradients}})
    if (json.has(key))
      if (auto given = read(json, {{key, value, 0}}); !given) return given.error();
  if (made.sharded_state > 1 || made.sharded_gradients > 1)
    return Error(
        fmt::format("sharded_state is {:g} and sharded_gradients {:g}; a share is at most 1",
                    made.sharded_state, made.sharded_gradients));
  if (json.has("max_shards")) {
    const auto shards = json.integer_at("max_shards", 0, kMaxShards);
    if (!shards) return shards.error();
    made.max_shards = static_cast<int>(*shards);
  }
  if (auto first = read_extras(json, "first", made.first); !first) return first.error();
  if (auto last = read_extras(json, "last", made.last); !last) return last.error();
  if (json.has("tied_embedding")) {
    auto tied = json.bool_at("tied_embedding");
    if (!tied) return tied.error();
    made.tied_embedding = *tied;
  }
  return made;
}

Json to_json(const Coefficients& coefficients, const cluster::Cluster& cluster) {
  Json types = Json::object();
  for (std::size_t i = 0; i < coefficients.types.size(); ++i) {
    const TypeCoefficients& type = coefficients.types[i];
    types.set(cluster.type(static_cast<int>(i)).name.c_str(),
              Json::object({{"comp_s", type.comp_s},
                            {"backward", type.backward},
                            {"optim_s", type.optim_s},
                            {"overlap", type.overlap},
                            {"launch_s", type.launch_s},
                            {"whole_s", type.whole_s},
                            {"weights_share", type.weights_share}}));
  }
  return Json::object({{"types", types},
                       {"activ_bytes", coefficients.activ_bytes},
                       {"param_bytes", coefficients.param_bytes},
                       {"param_optim_bytes", coefficients.param_optim_bytes},
                       {"activ_p_bytes", coefficients.activ_p_bytes},
                       {"activ_np_bytes", coefficients.activ_np_bytes},
                       {"head_layers", coefficients.head_layers},
                       {"sharded_state", coefficients.sharded_state},
                       {"sharded_gradients", coefficients.sharded_gradients},
                       {"max_shards", coefficients.max_shards},
                       {"first", extras_json(coefficients.first)},
                       {"last", extras_json(coefficients.last)},
                       {"tied_embedding", coefficients.tied_embedding}});
}

}  // namespace swell::perf
