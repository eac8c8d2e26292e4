// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/node_costs.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <tuple>

#include "core/count_of.h"

namespace swell::perf {

namespace {

constexpr int kVersion = 1;
constexpr std::size_t kMostDevices = 64, kMostUnits = 65'536;
constexpr int kMostSamples = 1 << 24, kMostTp = 4096;
constexpr double kMost_s = 1e6;

constexpr const char* kUnits[kNodeUnits] = {"layer", "embedding", "head", "module", "pass"};

/// Returns an error if the table's model has another `key` than `value`.
Result<void> check_size(const Json& json, const char* key, int value, const models::Model& model) {
  const auto found = json.integer_at(key, 1, 1 << 30);
  if (!found) return found.error();
  if (*found != value)
    return Error(fmt::format(
        "the table is of a model with {} {}, and {} has {}; measure this model by swell.profile",
        key, *found, model.name, value));
  return {};
}

Result<NodeCost> read_cost(const Json& json, bool is_layer) {
  NodeCost cost;
  const struct {
    const char* key;
    double* value;
    double least;
  } times[] = {{"forward_s", &cost.fwd, is_layer ? 1e-12 : 0},
               {"backward_s", &cost.bwd, is_layer ? 1e-12 : 0},
               {"optimizer_s", &cost.optim, 0}};
  for (const auto& time : times) {
    const auto value = json.number_at(time.key, time.least, kMost_s);
    if (!value) return value.error();
    *time.value = *value;
  }
  return cost;
}

/// One entry of a table. `layers`: number of the model's layers that it stands for.
struct Read {
  NodeUnit unit = NodeUnit::layer;
  int samples = 1, tp = 1, layers = 0;
  bool fits = true;
  NodeCost cost;
};

Result<Read> read_unit(const Json& json, const models::Model& model) {
  if (!is_object(json)) return Error("a unit must be a JSON object");
  Read made;
  const auto name = json.string_at("unit");
  if (!name) return name.error();
  const auto* known = std::find(std::begin(kUnits), std::end(kUnits), *name);
  if (known == std::end(kUnits))
    return Error(fmt::format(
        "\"unit\" is \"{}\"; it must be layer, embedding, head, module or pass", *name));
  made.unit = static_cast<NodeUnit>(known - std::begin(kUnits));
  const auto samples = json.integer_at("samples", 1, kMostSamples);
  if (!samples) return samples.error();
  const auto tp = json.integer_at("tp", 1, kMostTp);
  if (!tp) return tp.error();
  made.samples = static_cast<int>(*samples);
  made.tp = static_cast<int>(*tp);
  if (json.has("fits")) {
    const auto fits = json.bool_at("fits");
    if (!fits) return fits.error();
    made.fits = *fits;
  }
  if (!made.fits) return made;
  if (made.unit == NodeUnit::layer) {
    const auto layers = json.integer_at("layers", 1, model.layers);
    if (!layers) return layers.error();
    made.layers = static_cast<int>(*layers);
  }
  auto cost = read_cost(json, made.unit == NodeUnit::layer);
  if (!cost) return cost.error();
  made.cost = *cost;
  return made;
}

}  // namespace

Result<std::vector<NodeCosts::Shard>> NodeCosts::read_units(const Json& units,
                                                            const models::Model& model) {
  if (!is_array(units) || units.size() > kMostUnits)
    return Error(
        fmt::format("\"units\" must be a list of at most {}", count_of(kMostUnits, "unit")));
  struct Sum {
    int layers = 0;
    NodeCost cost;
  };
  std::map<std::tuple<int, std::size_t, int>, Sum> found;  // by TP degree, unit and samples
  std::size_t index = 0;
  for (const Json& json : units.items()) {
    const auto read = read_unit(json, model);
    if (!read) return read.error().while_doing(fmt::format("unit {}", index));
    ++index;
    if (!read->fits) continue;
    const auto [at, is_new] = found.try_emplace(
        std::tuple(read->tp, static_cast<std::size_t>(read->unit), read->samples));
    if (!is_new && read->unit != NodeUnit::layer)
      return Error(fmt::format("unit {} is the second {} with samples {} and tp {}; list each once",
                               index - 1, kUnits[static_cast<std::size_t>(read->unit)],
                               read->samples, read->tp));
    at->second.layers += read->layers;
    at->second.cost += read->unit == NodeUnit::layer ? read->cost * read->layers : read->cost;
  }
  std::vector<Shard> shards;
  for (const auto& [key, sum] : found) {
    const auto& [tp, unit, samples] = key;
    const bool is_layer = unit == static_cast<std::size_t>(NodeUnit::layer);
    if (is_layer && sum.layers > model.layers)
      return Error(fmt::format(
          "the layers with samples {} and tp {} are {}, and {} has {}; measure this model by swell.profile",
          samples, tp, sum.layers, model.name, model.layers));
    // Skip an incomplete sum: the measurement ran out of time before other kinds of layers.
    if (is_layer && sum.layers < model.layers) continue;
    if (shards.empty() || shards.back().tp != tp) shards.push_back({tp, {}});
    shards.back().units[unit].push_back(
        {samples, is_layer ? sum.cost * (1.0 / sum.layers) : sum.cost});
  }
  return shards;
}

Result<NodeCosts> NodeCosts::from_json(const Json& json, const models::Model& model,
                                       const cluster::Cluster& cluster) {
  if (!is_object(json)) return Error("a table of units must be a JSON object");
  const auto version = json.integer_at("swell_table", 0, 1 << 30);
  if (!version) return version.error();
  if (*version != kVersion)
    return Error(fmt::format(
        "\"swell_table\" is {}; this version reads {}: measure the model again by swell.profile",
        *version, kVersion));
  if (model.cp > 1 || model.ep > 1)
    return Error(fmt::format(
        "the table is of a device that has all tokens of a sample and all experts, and model {} has CP {} and EP {}: plan without the table",
        model.name, model.cp, model.ep));
  const Json its = json.at("model"), options = json.at("options");
  for (const auto& good :
       {check_size(its, "layers", model.layers, model),
        check_size(its, "hidden", model.hidden, model),
        its.has("vocabulary") ? check_size(its, "vocabulary", model.vocab, model) : Result<void>()})
    if (!good) return good.error();
  const auto sequence = options.integer_at("sequence", 1, 1 << 30);
  if (!sequence) return sequence.error();
  if (*sequence != model.sequence)
    return Error(fmt::format(
        "the table is of samples of {0}, and those of {1} have {2}; plan with --sequence {3}, or measure with --sequence {2} again",
        count_of(*sequence, "token"), model.name, model.sequence, *sequence));
  const Json devices = json.at("devices");
  if (!is_array(devices) || devices.size() > kMostDevices)
    return Error(
        fmt::format("\"devices\" must be a list of at most {}", count_of(kMostDevices, "device")));
  NodeCosts costs;
  costs.types_.resize(cluster.types().size());
  std::string others;
  bool any = false;
  for (const Json& device : devices.items()) {
    const auto type = device.string_at("type");
    if (!type) return type.error().while_doing("a device");
    auto shards = read_units(device.at("units"), model);
    if (!shards) return shards.error().while_doing("device " + *type);
    const auto known = std::find_if(cluster.types().begin(), cluster.types().end(),
                                    [&](const cluster::GpuType& one) { return one.name == *type; });
    if (known == cluster.types().end()) {
      others += (others.empty() ? "" : ", ") + *type;
      continue;
    }
    any = true;
    auto& place = costs.types_[static_cast<std::size_t>(known - cluster.types().begin())];
    if (!place.empty())
      return Error(fmt::format("\"devices\" has {} twice; list each type once", *type));
    place = *std::move(shards);
  }
  if (!any)
    return Error(fmt::format(
        "the table is of {}, which cluster {} does not have; name the type by swell.profile --type",
        others.empty() ? "no device" : others, cluster.name()));
  return costs;
}

std::optional<NodeCost> NodeCosts::of(NodeUnit unit, int type, int tp, int samples) const noexcept {
  const auto& shards = types_[static_cast<std::size_t>(type)];
  const auto shard =
      std::find_if(shards.begin(), shards.end(), [tp](const Shard& one) { return one.tp == tp; });
  if (shard == shards.end()) return std::nullopt;
  const auto& entries = shard->units[static_cast<std::size_t>(unit)];
  if (entries.empty()) return std::nullopt;
  const auto next =
      std::lower_bound(entries.begin(), entries.end(), samples,
                       [](const Entry& entry, int wanted) { return entry.samples < wanted; });
  if (next == entries.end() || (next == entries.begin() && next->samples != samples)) {
    const Entry& nearest = next == entries.end() ? entries.back() : entries.front();
    NodeCost cost = nearest.cost * (static_cast<double>(samples) / nearest.samples);
    cost.optim = nearest.cost.optim;
    return cost;
  }
  if (next->samples == samples) return next->cost;
  const Entry& before = *(next - 1);
  const double share =
      static_cast<double>(samples - before.samples) / (next->samples - before.samples);
  NodeCost cost = before.cost * (1 - share);
  cost += next->cost * share;
  return cost;
}

bool NodeCosts::knows(int type) const noexcept {
  const auto& shards = types_[static_cast<std::size_t>(type)];
  return std::any_of(shards.begin(), shards.end(), [](const Shard& one) {
    return !one.units[static_cast<std::size_t>(NodeUnit::layer)].empty();
  });
}

std::optional<NodeCost> NodeCosts::chunk(const models::Load& load, int type, int tp,
                                         int samples) const noexcept {
  const std::pair<NodeUnit, int> units[] = {{NodeUnit::layer, load.layers},
                                            {NodeUnit::embedding, load.embeddings},
                                            {NodeUnit::head, load.heads},
                                            {NodeUnit::module, load.modules}};
  NodeCost sum;
  for (const auto& [unit, count] : units) {
    if (count == 0) continue;
    const auto cost = of(unit, type, tp, samples);
    if (!cost) return std::nullopt;
    sum += *cost * count;
  }
  if (const auto pass = of(NodeUnit::pass, type, tp, samples)) sum += *pass;
  return sum;
}

void NodeCosts::fit(Coefficients& coefficients) const noexcept {
  for (std::size_t type = 0; type < types_.size(); ++type)
    for (const Shard& shard : types_[type]) {
      const auto& layers = shard.units[static_cast<std::size_t>(NodeUnit::layer)];
      if (layers.empty()) continue;
      const auto& [samples, cost] = layers.back();
      TypeCoefficients& k = coefficients.types[type];
      // Measured times include launches; the second model keeps the largest launch time that they
      // allow.
      const double launch = std::min({k.launch_s, 0.7 * cost.fwd, 0.35 * cost.bwd});
      const double device = std::sqrt(cost.fwd * cost.fwd - launch * launch);
      k.comp_s = device * shard.tp / samples;
      k.backward = std::sqrt(cost.bwd * cost.bwd - 4 * launch * launch) / device;
      k.optim_s = cost.optim * shard.tp;
      k.launch_s = launch;
      k.whole_s = 0;
      if (const auto head = of(NodeUnit::head, static_cast<int>(type), shard.tp, samples);
          head && head->fwd > 0)
        coefficients.head_layers = head->fwd / (device * shard.tp);
      break;
    }
}

}  // namespace swell::perf
