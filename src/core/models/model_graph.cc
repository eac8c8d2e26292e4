// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/models/model_graph.h"

#include "core/count_of.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <optional>

namespace swell::models {

namespace {

constexpr double kMostSize = 1e18;  // maximum of operations, bytes and parameters
constexpr int kMostExtent = 1 << 30;
constexpr std::size_t kMostInputs = 4096, kLongestName = 256;
constexpr double kRounding = 1e-6;  // relative tolerance of totals
constexpr int kWidestGroup = 64;    // maximum GPUs of a TP group
// Minimum share of the load for a block to count as the layers.
constexpr double kLeastShare = 0.25;

constexpr const char* kKinds[kOperatorKinds] = {"matmul", "convolution", "attention",  "embedding",
                                                "norm",   "loss",        "elementwise"};
constexpr const char* kDimensions[kSplitDimensions] = {"samples", "columns", "heads", "experts"};

/// Returns the index of `word` in `words`; -1 if it is not there.
template <std::size_t N>
int index_of(const char* const (&words)[N], const std::string& word) {
  for (std::size_t i = 0; i < N; ++i)
    if (word == words[i]) return static_cast<int>(i);
  return -1;
}

template <std::size_t N>
std::string listed(const char* const (&words)[N]) {
  std::string all;
  for (const char* word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return all;
}

Result<void> read_split(const Json& json, Operator& made) {
  const Json split = json.at("split");
  if (!is_object(split)) return Error("\"split\" must be an object of dimensions and extents");
  for (const auto& [name, value] : members(split)) {
    const int along = index_of(kDimensions, name);
    if (along < 0)
      return Error(fmt::format("\"split\" names the dimension \"{}\"; it must be one of {}", name,
                               listed(kDimensions)));
    const auto extent = split.integer_at(name.c_str(), 0, kMostExtent);
    if (!extent) return extent.error().while_doing("\"split\"");
    const int least = along == static_cast<int>(SplitDimension::samples) ? 1 : 2;
    if (*extent < least)
      return Error(fmt::format(
          "\"split\" along {} has an extent of {}, which divides nothing; it must be at least {}",
          name, *extent, least));
    made.split[static_cast<std::size_t>(along)] = static_cast<int>(*extent);
  }
  return {};
}

Result<std::string> read_name(const Json& json) {
  auto name = json.string_at("name");
  if (name && name->size() > kLongestName)
    return Error(
        fmt::format("\"name\" has {} bytes; at most {} are read", name->size(), kLongestName));
  return name;
}

Result<Operator> read_operator(const Json& json, int count) {
  if (!is_object(json)) return Error("an operator must be a JSON object");
  Operator made;
  auto name = read_name(json);
  if (!name) return name.error();
  made.name = *std::move(name);
  const auto kind = json.string_at("kind");
  if (!kind) return kind.error();
  const int known = index_of(kKinds, *kind);
  if (known < 0)
    return Error(fmt::format("\"kind\" is \"{}\"; it must be one of {}", *kind, listed(kKinds)));
  made.kind = static_cast<OperatorKind>(known);
  const struct {
    const char* key;
    double* value;
  } sizes[] = {{"flop", &made.flop},
               {"read_bytes", &made.read_bytes},
               {"write_bytes", &made.write_bytes},
               {"weight_bytes", &made.weight_bytes},
               {"parameters", &made.parameters},
               {"shared_parameters", &made.shared_parameters},
               {"kept_split_bytes", &made.kept_split_bytes},
               {"kept_whole_bytes", &made.kept_whole_bytes}};
  for (const auto& size : sizes) {
    const auto value = json.number_at(size.key, 0, kMostSize);
    if (!value) return value.error();
    *size.value = *value;
  }
  const Json inputs = json.at("inputs");
  if (!is_array(inputs) || inputs.size() > kMostInputs)
    return Error(
        fmt::format("\"inputs\" must be a list of at most {}", count_of(kMostInputs, "operator")));
  for (const Json& input : inputs.items()) {
    const json_int_t from = is_integer(input) ? json_integer_value(input.get()) : -1;
    if (from < 0 || from >= count)
      return Error(fmt::format("\"inputs\" has {}; operators are numbered from 0 to {}",
                               ascii_text(input), count - 1));
    made.inputs.push_back(static_cast<int>(from));
  }
  if (auto good = read_split(json, made); !good) return good.error();
  return made;
}

/// Returns an error for a cycle, or an operator in front of its inputs.
Result<void> check_order(const std::vector<Operator>& operators) {
  std::vector<std::vector<int>> readers(operators.size());
  std::vector<std::size_t> waits(operators.size());
  for (std::size_t i = 0; i < operators.size(); ++i) {
    waits[i] = operators[i].inputs.size();
    for (const int input : operators[i].inputs)
      readers[static_cast<std::size_t>(input)].push_back(static_cast<int>(i));
  }
  std::vector<int> ready;
  for (std::size_t i = 0; i < operators.size(); ++i)
    if (waits[i] == 0) ready.push_back(static_cast<int>(i));
  for (std::size_t next = 0; next < ready.size(); ++next)
    for (const int reader : readers[static_cast<std::size_t>(ready[next])])
      if (--waits[static_cast<std::size_t>(reader)] == 0) ready.push_back(reader);
  if (ready.size() < operators.size()) {
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](auto left) { return left > 0; });
    const auto index = static_cast<std::size_t>(stuck - waits.begin());
    return Error(fmt::format(
        "operator {} (\"{}\") is in a cycle or reads an operator of one; export the model again",
        index, operators[index].name));
  }
  for (std::size_t i = 0; i < operators.size(); ++i)
    for (const int input : operators[i].inputs)
      if (static_cast<std::size_t>(input) >= i)
        return Error(fmt::format(
            "operator {} (\"{}\") reads operator {}, which stands behind it; list operators in the order in which they run",
            i, operators[i].name, input));
  return {};
}

Result<void> read_repeats(const Json& json, Graph& graph) {
  const Json repeats = json.at("repeats");
  if (!is_array(repeats)) return Error("\"repeats\" must be a list");
  const int count = static_cast<int>(graph.operators.size());
  std::int64_t expanded = count;
  int free = 0;
  for (const Json& one : repeats.items()) {
    const std::string where = fmt::format("repeat {}", graph.repeats.size());
    const auto first = one.integer_at("first", 0, kMostOperators);
    if (!first) return first.error().while_doing(where);
    const auto operators = one.integer_at("operators", 1, kMostOperators);
    if (!operators) return operators.error().while_doing(where);
    const auto times = one.integer_at("times", 2, kMostExpanded);
    if (!times) return times.error().while_doing(where);
    if (*first < free || *first + *operators > count)
      return Error(
          fmt::format("{}: operators {} to {} overlap another repeat or are not among the {}",
                      where, *first, *first + *operators - 1, count_of(count, "operator")));
    free = static_cast<int>(*first + *operators);
    expanded += (*times - 1) * *operators;
    if (expanded > kMostExpanded)
      return Error(fmt::format("{}: with {} times the model has {}; at most {} are read", where,
                               *times, count_of(expanded, "operator"), kMostExpanded));
    graph.repeats.push_back(
        {static_cast<int>(*first), static_cast<int>(*operators), static_cast<int>(*times)});
  }
  return {};
}

/// Calls `visit(index, times)` for each operator.
template <typename Visit>
void for_each(const Graph& graph, const Visit& visit) {
  std::size_t next = 0;
  for (int i = 0; i < static_cast<int>(graph.operators.size()); ++i) {
    while (next < graph.repeats.size() &&
           i >= graph.repeats[next].first + graph.repeats[next].operators)
      ++next;
    const bool repeated = next < graph.repeats.size() && i >= graph.repeats[next].first;
    visit(i, repeated ? graph.repeats[next].times : 1);
  }
}

/// Returns the indexes of all operators with their repeats, in the order in which they run.
std::vector<int> expand(const Graph& graph) {
  std::vector<int> order;
  int next = 0;
  const auto until = [&](int end) {
    for (; next < end; ++next) order.push_back(next);
  };
  for (const Repeat& repeat : graph.repeats) {
    until(repeat.first);
    for (int i = 0; i < repeat.times; ++i) {
      next = repeat.first;
      until(repeat.first + repeat.operators);
    }
  }
  until(static_cast<int>(graph.operators.size()));
  return order;
}

void add(OperatorCluster& to, const Graph& graph, int index, double load, double times = 1) {
  const Operator& one = graph.operators[static_cast<std::size_t>(index)];
  to.counts.resize(graph.operators.size());
  to.counts[static_cast<std::size_t>(index)] += times;
  Unit& unit = to.unit;
  unit.forward_flop += times * one.flop;
  unit.traffic_bytes += times * (one.read_bytes + one.write_bytes);
  unit.parameters += times * one.parameters;
  unit.split_bytes += times * one.kept_split_bytes;
  unit.whole_bytes += times * one.kept_whole_bytes;
  unit.boundary_bytes = one.write_bytes;
  to.weight_bytes += times * one.weight_bytes;
  to.shared_parameters += times * one.shared_parameters;
  to.load += times * load;
}

OperatorCluster mean_of(const std::vector<OperatorCluster>& clusters) {
  OperatorCluster mean;
  const double share = 1.0 / static_cast<double>(clusters.size());
  for (const OperatorCluster& one : clusters) {
    mean.unit.forward_flop += share * one.unit.forward_flop;
    mean.unit.traffic_bytes += share * one.unit.traffic_bytes;
    mean.unit.parameters += share * one.unit.parameters;
    mean.unit.split_bytes += share * one.unit.split_bytes;
    mean.unit.whole_bytes += share * one.unit.whole_bytes;
    mean.unit.boundary_bytes += share * one.unit.boundary_bytes;
    mean.weight_bytes += share * one.weight_bytes;
    mean.shared_parameters += share * one.shared_parameters;
    mean.load += share * one.load;
    mean.counts.resize(one.counts.size());
    for (std::size_t i = 0; i < one.counts.size(); ++i) mean.counts[i] += share * one.counts[i];
  }
  return mean;
}

}  // namespace

double Graph::parameters() const noexcept {
  double sum = 0;
  for_each(*this, [&](int i, int times) {
    sum += times * operators[static_cast<std::size_t>(i)].parameters;
  });
  return sum;
}

double Graph::forward_flop() const noexcept {
  double sum = 0;
  for_each(*this,
           [&](int i, int times) { sum += times * operators[static_cast<std::size_t>(i)].flop; });
  return sum;
}

bool is_graph(const Json& json) noexcept { return json.has("swell_graph"); }

Result<Graph> graph_from_json(const Json& json) {
  if (!is_object(json)) return Error("a graph is a JSON object");
  const auto version = json.integer_at("swell_graph", 0, kMostExtent);
  if (!version) return version.error();
  if (*version != kGraphVersion)
    return Error(fmt::format(
        "the graph has version {}; version {} is read: export it with the swell package of this installation",
        *version, kGraphVersion));
  Graph graph;
  auto name = read_name(json);
  if (!name) return name.error();
  graph.name = *std::move(name);
  const auto sequence = json.integer_at("sequence", 1, kMostExtent);
  if (!sequence) return sequence.error();
  graph.sequence = static_cast<int>(*sequence);
  const auto batch = json.integer_at("global_batch", 1, kMostBatch);
  if (!batch) return batch.error();
  graph.global_batch = static_cast<int>(*batch);
  const auto bytes = json.number_at("parameter_bytes", 0.125, 16);
  if (!bytes) return bytes.error();
  graph.parameter_bytes = *bytes;
  const Json operators = json.at("operators");
  if (!is_array(operators) || operators.size() < 1 ||
      operators.size() > static_cast<std::size_t>(kMostOperators))
    return Error(fmt::format("\"operators\" must be a list of 1 to {}", kMostOperators));
  const int count = static_cast<int>(operators.size());
  for (const Json& one : operators.items()) {
    auto read = read_operator(one, count);
    if (!read) return read.error().while_doing(fmt::format("operator {}", graph.operators.size()));
    graph.operators.push_back(*std::move(read));
  }
  if (auto good = check_order(graph.operators); !good) return good.error();
  if (auto good = read_repeats(json, graph); !good) return good.error();
  const struct {
    const char* key;
    double counted;
  } totals[] = {{"parameters", graph.parameters()}, {"forward_flop", graph.forward_flop()}};
  for (const auto& total : totals) {
    const auto said = json.number_at(total.key, 0, kMostSize * kMostExpanded);
    if (!said) return said.error();
    if (std::abs(*said - total.counted) > kRounding * std::max(*said, total.counted))
      return Error(fmt::format(
          "\"{}\" is {:.10g}, but the operators have {:.10g} in all; export the model again",
          total.key, *said, total.counted));
  }
  if (!(graph.forward_flop() > 0))
    return Error("the operators have no operations; export a model with products");
  return graph;
}

std::vector<OperatorCluster> cluster_operators(const Graph& graph, int most,
                                               const OperatorLoad& load) {
  const std::vector<int> order = expand(graph);
  std::vector<double> loads;
  for (const Operator& one : graph.operators) loads.push_back(load(one));
  const auto load_at = [&](int index) { return loads[static_cast<std::size_t>(index)]; };
  const auto clusters_with = [&](double limit) {
    int clusters = 1;
    double filled = 0;
    for (const int index : order) {
      if (filled > 0 && filled + load_at(index) > limit) {
        filled = 0;
        ++clusters;
      }
      filled += load_at(index);
    }
    return clusters;
  };
  double low = *std::max_element(loads.begin(), loads.end()), high = low;
  while (clusters_with(high) > most) high *= 2;
  for (int i = 0; i < 60 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (clusters_with(middle) <= most) high = middle;
    else if (middle > low) low = middle;
    else break;
  }
  std::vector<OperatorCluster> made(1);
  for (const int index : order) {
    if (made.back().load > 0 && made.back().load + load_at(index) > high) made.emplace_back();
    add(made.back(), graph, index, load_at(index));
  }
  return made;
}

GraphChain chain_of(const Graph& graph, const OperatorLoad& load) {
  GraphChain chain;
  Model& model = chain.model;
  model.name = graph.name;
  model.sequence = graph.sequence;
  model.global_batch = graph.global_batch;
  model.ffn = model.vocab = 1;

  const Repeat* largest = nullptr;
  double largest_load = 0;
  const auto sum = [&](int first, int end) {
    OperatorCluster made;
    for_each(graph, [&](int i, int times) {
      if (i >= first && i < end)
        add(made, graph, i, load(graph.operators[static_cast<std::size_t>(i)]), times);
    });
    return made;
  };
  // Total load of all operators before each one. With these sums, time does not grow with the
  // product of repeats and operators.
  std::vector<double> before(graph.operators.size() + 1, 0.0);
  for_each(graph, [&](int i, int times) {
    before[static_cast<std::size_t>(i) + 1] =
        times * load(graph.operators[static_cast<std::size_t>(i)]);
  });
  std::partial_sum(before.begin(), before.end(), before.begin());
  for (const Repeat& repeat : graph.repeats) {
    const double its = before[static_cast<std::size_t>(repeat.first + repeat.operators)] -
                       before[static_cast<std::size_t>(repeat.first)];
    if (largest == nullptr || its > largest_load) {
      largest = &repeat;
      largest_load = its;
    }
  }
  const int count = static_cast<int>(graph.operators.size());
  if (largest != nullptr && largest->times <= kMostLayers &&
      kLeastShare * before.back() <= largest_load) {
    chain.first = sum(0, largest->first);
    chain.last = sum(largest->first + largest->operators, count);
    for (int i = largest->first; i < largest->first + largest->operators; ++i)
      add(chain.layer, graph, i, load(graph.operators[static_cast<std::size_t>(i)]));
    model.layers = largest->times;
  }
  const bool is_layered = model.layers > 0 && chain.first.load <= chain.layer.load;
  if (!is_layered) {
    const std::vector<OperatorCluster> clusters = cluster_operators(graph, kClusters, load);
    model.layers = static_cast<int>(clusters.size());
    chain.layer = mean_of(clusters);
    chain.first = chain.last = {};
  }
  model.tied_embedding = chain.last.shared_parameters > 0;

  int common = 0;
  const int from = is_layered ? largest->first : 0;
  const int to = is_layered ? from + largest->operators : count;
  for (int i = from; i < to; ++i)
    for (const SplitDimension along :
         {SplitDimension::columns, SplitDimension::heads, SplitDimension::experts})
      common = std::gcd(common, graph.operators[static_cast<std::size_t>(i)].extent(along));
  model.hidden = model.heads = model.kv_heads = common > 0 ? std::gcd(common, kWidestGroup) : 1;
  return chain;
}

}  // namespace swell::models
