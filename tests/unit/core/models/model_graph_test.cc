// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <cmath>
#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "core/models/model_graph.h"
#include "core/perf/peak_memory.h"
#include "core/perf/roofline.h"

using namespace swell;
using namespace swell::models;

namespace {

Json operator_json(const char* name, const char* kind, Json inputs, double flop, double parameters,
                   Json split = Json::object()) {
  return Json::object({{"name", name},
                       {"kind", kind},
                       {"inputs", std::move(inputs)},
                       {"flop", flop},
                       {"read_bytes", 64.0},
                       {"write_bytes", 32.0},
                       {"weight_bytes", 2 * parameters},
                       {"parameters", parameters},
                       {"shared_parameters", 0.0},
                       {"kept_split_bytes", 16.0},
                       {"kept_whole_bytes", 8.0},
                       {"split", std::move(split)}});
}

/// An embedding, six layers of two operators each, and a head with the embedding's matrix.
Json sample() {
  Json head =
      operator_json("head", "matmul", Json::array({2}), 4e9, 10, Json::object({{"columns", 1000}}));
  head.set("shared_parameters", 500.0);
  return Json::object(
      {{"swell_graph", 1},
       {"name", "small"},
       {"sequence", 128},
       {"global_batch", 64},
       {"parameter_bytes", 2.0},
       {"parameters", 500.0 + 6 * 300 + 10},
       {"forward_flop", 6 * 3e9 + 4e9},
       {"operators", Json::array({operator_json("embed", "embedding", Json::array(), 0, 500),
                                  operator_json("attend", "attention", Json::array({0}), 1e9, 100,
                                                Json::object({{"samples", 2}, {"heads", 12}})),
                                  operator_json("mlp", "matmul", Json::array({1}), 2e9, 200,
                                                Json::object({{"samples", 2}, {"columns", 3072}})),
                                  head})},
       {"repeats", Json::array({Json::object({{"first", 1}, {"operators", 2}, {"times", 6}})})}});
}

double flop_of(const Operator& one) { return one.flop; }

/// The sample with one member of operator `index` replaced.
Json with(std::size_t index, const char* key, Json value) {
  Json json = sample();
  json.at("operators").at(index).set(key, std::move(value));
  return json;
}

std::string why_not(const Json& json) {
  const auto read = graph_from_json(json);
  return read.ok() ? "" : read.error().message();
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// A chain of operators with these operations, none of which repeats.
Graph chain_with(const std::vector<double>& flop) {
  Graph graph;
  graph.name = "chain";
  graph.global_batch = 16;
  for (const double one : flop) {
    Operator made;
    made.kind = OperatorKind::matmul;
    made.flop = one;
    made.parameters = one;
    graph.operators.push_back(made);
  }
  return graph;
}

}  // namespace

Test(model_graph, a_repeated_block_becomes_the_layers) {
  const auto graph = graph_from_json(sample());
  cr_assert(graph.ok(), "%s", graph.ok() ? "" : graph.error().message().c_str());
  const GraphChain chain = chain_of(*graph, flop_of);
  cr_assert_eq(chain.model.layers, 6);
  cr_assert(check(chain.model).ok());
  cr_assert_eq(chain.model.heads, 4);  // divides 12 and 3072, and 64
  cr_assert(chain.model.tied_embedding);
  cr_assert_eq(chain.layer.unit.forward_flop, 3e9);
  cr_assert_eq(chain.layer.unit.parameters, 300);
  cr_assert_eq(chain.layer.unit.split_bytes, 32);
  cr_assert_eq(chain.layer.unit.whole_bytes, 16);
  cr_assert_eq(chain.first.unit.parameters, 500);
  cr_assert_eq(chain.last.unit.forward_flop, 4e9);
  cr_assert_eq(chain.last.shared_parameters, 500);
}

Test(model_graph, bad_graphs_are_refused_by_name_and_value) {
  Json version = sample();
  version.set("swell_graph", 2);
  cr_assert(has(why_not(version), "version 2"), "%s", why_not(version).c_str());
  Json missing = Json::object();
  for (const auto& [key, value] : members(sample()))
    if (key != "sequence") missing.set(key.c_str(), value);
  cr_assert(has(why_not(missing), "sequence"));
  const struct {
    Json json;
    const char* says;
  } cases[] = {
      {with(1, "inputs", Json::array({2})), "is in a cycle"},
      {with(2, "inputs", Json::array({2})), "is in a cycle"},
      {with(0, "inputs", Json::array({3})), "is in a cycle"},
      {with(1, "inputs", Json::array({9})), "numbered from 0 to 3"},
      {with(1, "inputs", Json::array({-1})), "numbered from 0 to 3"},
      {with(1, "flop", -1.0), "operator 1: \"flop\""},
      {with(1, "flop", 1e19), "operator 1: \"flop\""},
      {with(1, "write_bytes", "many"), "operator 1: \"write_bytes\""},
      {with(2, "split", Json::object({{"columns", 1}})), "extent of 1, which divides nothing"},
      {with(2, "split", Json::object({{"samples", 0}})), "extent of 0, which divides nothing"},
      {with(2, "split", Json::object({{"rows", 4}})), "\"rows\""},
      {with(2, "kind", "magic"), "\"magic\""},
      {with(2, "parameters", 7.0), "export the model again"},
      {with(2, "flop", 7.0), "export the model again"},
      {with(2, "name", std::string(300, 'x')), "300 bytes"},
  };
  for (const auto& one : cases)
    cr_assert(has(why_not(one.json), one.says), "%s: %s", one.says, why_not(one.json).c_str());
  Json behind = sample();  // no cycle, but out of order
  behind.at("operators").at(std::size_t{0}).set("inputs", Json::array({1}));
  behind.at("operators").at(std::size_t{1}).set("inputs", Json::array());
  cr_assert(has(why_not(behind), "stands behind it"), "%s", why_not(behind).c_str());
  const std::string text = sample().dump();
  for (const std::size_t bytes : {text.size() / 4, text.size() / 2, text.size() - 1})
    cr_assert(!Json::parse(std::string_view(text).substr(0, bytes)).ok());
}

Test(model_graph, a_size_that_lacks_is_named) {
  for (const char* key :
       {"flop", "read_bytes", "write_bytes", "weight_bytes", "parameters", "shared_parameters",
        "kept_split_bytes", "kept_whole_bytes", "inputs", "split", "kind", "name"}) {
    Json json = sample(), less = Json::object();
    for (const auto& [name, value] : members(json.at("operators").at(std::size_t{1})))
      if (name != key) less.set(name.c_str(), value);
    Json operators = Json::array();
    for (std::size_t i = 0; i < 4; ++i)
      operators.append(i == 1 ? less : json.at("operators").at(i));
    json.set("operators", operators);
    cr_assert(has(why_not(json), key), "%s: %s", key, why_not(json).c_str());
  }
}

Test(model_graph, repeats_that_overlap_or_are_too_many_are_refused) {
  const auto repeated = [](int first, int operators, int times) {
    Json json = sample();
    json.set("repeats",
             Json::array(
                 {Json::object({{"first", 0}, {"operators", 1}, {"times", 2}}),
                  Json::object({{"first", first}, {"operators", operators}, {"times", times}})}));
    return why_not(json);
  };
  cr_assert(has(repeated(0, 1, 2), "overlap"));
  cr_assert(has(repeated(3, 2, 2), "overlap"));
  cr_assert(has(repeated(1, 1, 1), "times"));
  cr_assert(has(repeated(1, 3, 500000), "at most"));
}

Test(model_graph, clusters_have_the_least_possible_fullest_load) {
  // Against all partitions of a dozen operators into at most four clusters.
  std::uint64_t state = 7;
  for (int round = 0; round < 50; ++round) {
    std::vector<double> flop;
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      flop.push_back(static_cast<double>(1 + (state >> 33) % 100));
    }
    double best = 1e9;
    for (unsigned cuts = 0; cuts < (1u << 11); ++cuts) {
      if (__builtin_popcount(cuts) > 3) continue;
      double fullest = 0, load = 0;
      for (std::size_t i = 0; i < 12; ++i) {
        load += flop[i];
        fullest = std::max(fullest, load);
        if (i < 11 && (cuts >> i & 1)) load = 0;
      }
      best = std::min(best, fullest);
    }
    const auto made = cluster_operators(chain_with(flop), 4, flop_of);
    double fullest = 0, all = 0;
    for (const OperatorCluster& one : made) {
      fullest = std::max(fullest, one.load);
      all += one.unit.parameters;
    }
    double sum = 0;
    for (const double one : flop) sum += one;
    cr_assert(made.size() <= 4 && std::abs(fullest - best) < 1e-6 && all == sum, "%g, best %g",
              fullest, best);
  }
}

Test(model_graph, a_model_without_a_block_of_most_work_becomes_clusters) {
  std::vector<double> flop;
  for (int i = 0; i < 60; ++i) flop.push_back(1 + i % 7);
  const Graph graph = chain_with(flop);
  const GraphChain chain = chain_of(graph, flop_of);
  cr_assert(chain.model.layers <= kClusters && chain.model.layers > kClusters / 2);
  cr_assert(std::abs(chain.model.layers * chain.layer.unit.parameters - graph.parameters()) < 1e-6);
  cr_assert_eq(chain.model.heads, 1);  // nothing can be split
}

Test(model_graph, load_is_operations_over_attainable_speed) {
  // Eq. 2 as printed: operations over min(peak, intensity * bandwidth).
  for (const double flop : {1.0, 50.0, 1e4})
    for (const double bytes : {1.0, 40.0, 1e3}) {
      const double printed = flop / std::min(100.0, flop / bytes * 20);
      cr_assert(std::abs(perf::roofline_s(flop, bytes, 100, 20) / printed - 1) < 1e-12);
    }
  cr_assert_eq(perf::roofline_s(0, 40, 100, 20), 2);
}

Test(model_graph, weights_are_read_once_a_micro_batch) {
  const auto cluster = cluster::preset("1x8-h100");
  Operator one;
  one.weight_bytes = 1e9;
  one.read_bytes = 1e6;
  const double alone = perf::forward_s(one, cluster->type(0), 1);
  const double many = perf::forward_s(one, cluster->type(0), 1000);
  cr_assert(std::abs(alone / many - 1001e6 / 2e6) < 1e-6);
}

Test(model_graph, coefficients_come_from_operators) {
  const auto cluster = cluster::preset("1x8-h100");
  const auto graph = graph_from_json(sample());
  const GraphChain chain = chain_of(*graph, perf::roofline_load(cluster->type(0), 1));
  const perf::Coefficients k = perf::expected_coefficients(*graph, chain, *cluster, 1);
  const double peak = cluster->type(0).tflops(cluster::Precision::bf16) * 1e12;
  const double layer = 1e9 / (peak * perf::Attainable().of(OperatorKind::attention)) +
                       2e9 / (peak * perf::Attainable().of(OperatorKind::matmul));
  cr_assert(std::abs(k.types[0].comp_s / layer - 1) < 1e-9);
  cr_assert_eq(k.param_bytes, 600);
  cr_assert_eq(k.param_optim_bytes, 1800);
  cr_assert_eq(k.activ_p_bytes, 32);
  cr_assert_eq(k.activ_np_bytes, 16);
  cr_assert_eq(k.first.param_bytes, 1000);
  cr_assert(k.tied_embedding && k.head_layers > 1);
}
