// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/node_costs.h"

#include <criterion/criterion.h>
#include <fmt/format.h>

#include "core/perf/chunk_costs.h"
#include "core/perf/performance_model.h"
#include "core/schedule/named.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::perf;
using support::near;

namespace {

/// A unit as swell.profile writes it.
std::string unit(const char* name, int samples, int tp, double fwd, double bwd, double optim,
                 int layers = 8) {
  return fmt::format(
      R"({{"unit": "{}", "layers": {}, "samples": {}, "tp": {}, "forward_s": {}, "backward_s": {}, "optimizer_s": {}}})",
      name, layers, samples, tp, fwd, bwd, optim);
}

std::string table_of(const std::string& units, const char* type = "h100", int layers = 8) {
  return fmt::format(
      R"({{"swell_table": 1, "model": {{"layers": {}, "hidden": 1024}}, "options": {{"sequence": 1024}}, "devices": [{{"type": "{}", "units": [{}]}}]}})",
      layers, type, units);
}

Result<NodeCosts> read(const std::string& text) {
  static const auto model = support::small_model();
  static const auto cluster = support::mixed_nodes(8, 8);
  const auto json = Json::parse(text);
  cr_assert(json.ok(), "%s", text.c_str());
  return NodeCosts::from_json(*json, model, cluster);
}

NodeCosts costs(const std::string& units) {
  auto read_costs = read(table_of(units));
  cr_assert(read_costs.ok(), "%s", read_costs.ok() ? "" : read_costs.error().message().c_str());
  return *std::move(read_costs);
}

/// Times in milliseconds of a whole model, for one sample.
const std::string kAll =
    unit("layer", 1, 1, 2e-3, 5e-3, 1e-3) + "," + unit("embedding", 1, 1, 1e-3, 2e-3, 3e-3) + "," +
    unit("head", 1, 1, 4e-3, 9e-3, 3e-3) + "," + unit("pass", 1, 1, 0.5e-3, 0.25e-3, 0.125e-3);

bool is(const std::optional<NodeCost>& cost, double fwd, double bwd, double optim) {
  return cost && near(cost->fwd, fwd) && near(cost->bwd, bwd) && near(cost->optim, optim);
}

}  // namespace

// Arena, 3.4: the first micro-batch through all stages, and the others at the slowest stage's pace.
Test(node_costs, a_pipeline_takes_its_first_micro_batch_and_the_others_at_the_slowest_stage) {
  const auto model = support::small_model(8, 4);
  const auto cluster = support::mixed_nodes(8, 8);
  const auto k = support::round_coefficients(2);
  const NodeCosts measured = costs(kAll);
  const PerformanceModel perf(model, cluster, k, Sends::ignored, &measured);
  plan::Layout layout{4, {}};
  support::add_stage(layout, 5, 1, 1, 1);
  support::add_stage(layout, 3, 1, 1, 1, 0, 1);
  // Stage 0: embedding, five layers and what a pass takes; stage 1: three layers and the head.
  const double first = (1 + 5 * 2 + 0.5) + (2 + 5 * 5 + 0.25);
  const double second = (3 * 2 + 4 + 0.5) + (3 * 5 + 9 + 0.25);
  // Stage 1 steps its optimizer while stage 0's last backward pass runs.
  const double extra = 3 + 5 * 1 + 0.125;
  const IterationTime time = perf.iteration_time(layout);
  cr_assert(near(time.warm_up, (first + second) * 1e-3));
  cr_assert(near(time.steady, 3 * first * 1e-3));
  cr_assert(near(time.extra, extra * 1e-3));
  // The evaluator knows when each pass runs: no more than this, nor less than the slowest stage.
  const auto passes = schedule::named("1f1b", {2, 1, 4});
  const auto graph = schedule::Graph::of_orders(*passes);
  const double evaluated = schedule::evaluate(*graph, chunk_costs(perf, layout)).seconds;
  cr_assert(evaluated <= time.total() && evaluated > 4 * first * 1e-3, "%g", evaluated);
}

Test(node_costs, adds_communication_of_shards) {
  const auto model = support::small_model();
  const auto cluster = support::mixed_nodes(8, 8);
  const auto k = support::round_coefficients(2);
  const NodeCosts measured = costs(unit("layer", 4, 2, 2e-3, 5e-3, 1e-3));
  const PerformanceModel perf(model, cluster, k, Sends::ignored, &measured);
  const auto passes = perf.layer_passes(0, 2, 4);
  const double commu = perf.layer_commu(0, 2, 4);
  cr_assert_gt(commu, 0);
  cr_assert(near(passes.fwd, 2e-3 + commu) && near(passes.bwd, 5e-3 + commu));
}

Test(node_costs, shards_that_were_not_measured_take_the_time_of_the_coefficients) {
  const auto model = support::small_model();
  const auto cluster = support::mixed_nodes(8, 8);
  const auto k = support::round_coefficients(2);
  const NodeCosts measured = costs(kAll);
  const PerformanceModel with(model, cluster, k, Sends::ignored, &measured),
      without(model, cluster, k);
  cr_assert(near(with.layer_time(0, 2, 1), without.layer_time(0, 2, 1)), "another TP degree");
  cr_assert(near(with.layer_time(1, 1, 1), without.layer_time(1, 1, 1)), "another type");
  cr_assert(measured.knows(0) && !measured.knows(1));
}

Test(node_costs, samples_between_those_measured_lie_on_the_line_and_beside_them_in_proportion) {
  const NodeCosts measured =
      costs(unit("layer", 2, 1, 2e-3, 5e-3, 1e-3) + "," + unit("layer", 4, 1, 3e-3, 9e-3, 1e-3));
  cr_assert(is(measured.of(NodeUnit::layer, 0, 1, 2), 2e-3, 5e-3, 1e-3));
  cr_assert(is(measured.of(NodeUnit::layer, 0, 1, 3), 2.5e-3, 7e-3, 1e-3));
  cr_assert(is(measured.of(NodeUnit::layer, 0, 1, 8), 6e-3, 18e-3, 1e-3));
  cr_assert(is(measured.of(NodeUnit::layer, 0, 1, 1), 1e-3, 2.5e-3, 1e-3));
  cr_assert(!measured.of(NodeUnit::head, 0, 1, 2));
}

Test(node_costs, layers_that_differ_count_by_their_number) {
  const auto slow = unit("layer", 1, 1, 6e-3, 9e-3, 1e-3, 2),
             fast = unit("layer", 1, 1, 2e-3, 5e-3, 1e-3, 6);
  cr_assert(is(costs(slow + "," + fast).of(NodeUnit::layer, 0, 1, 1), 3e-3, 6e-3, 1e-3));
  cr_assert(!costs(fast).of(NodeUnit::layer, 0, 1, 1), "time was up before the slow ones");
}

Test(node_costs, a_unit_that_did_not_fit_has_no_time) {
  const NodeCosts measured = costs(
      kAll + R"(,{"unit": "layer", "samples": 64, "tp": 1, "fits": false, "why": "no room"})");
  cr_assert(is(measured.of(NodeUnit::layer, 0, 1, 1), 2e-3, 5e-3, 1e-3));
}

Test(node_costs, coefficients_follow_what_was_measured) {
  const auto model = support::small_model();
  const auto cluster = support::mixed_nodes(8, 8);
  const NodeCosts measured = costs(kAll);
  for (const double launch_s : {0.0, 0.5e-3, 100e-3}) {
    auto k = support::round_coefficients(2);
    k.types[0].launch_s = launch_s;
    k.types[0].whole_s = 1e-3;
    const auto before = k.types[1];
    measured.fit(k);
    const auto passes = PerformanceModel(model, cluster, k).layer_passes(0, 1, 1);
    cr_assert(near(passes.fwd, 2e-3) && near(passes.bwd, 5e-3), "%g", launch_s);
    cr_assert(near(k.types[0].optim_s, 1e-3));
    cr_assert(k.types[1] == before, "a type that was not measured stays as it is");
  }
}

Test(node_costs, a_table_that_cannot_be_is_refused_in_one_sentence) {
  const struct {
    std::string text;
    const char* says;
  } cases[] = {
      {"[]", "must be a JSON object"},
      {R"({"swell_table": 2})", "\"swell_table\" is 2; this version reads 1"},
      {table_of(kAll, "h100", 9), "is of a model with layers 9, and small has 8"},
      {R"({"swell_table": 1, "model": {"layers": 8, "hidden": 1024}, "options": {"sequence": 512}})",
       "is of samples of 512 tokens, and those of small have 1024; plan with --sequence 512"},
      {table_of(kAll, "h200"), "the table is of h200, which cluster mixed does not have"},
      {table_of(unit("norm", 1, 1, 1, 1, 1)), "\"unit\" is \"norm\""},
      {table_of(unit("layer", 0, 1, 1, 1, 1)), "samples"},
      {table_of(unit("layer", 1, 1, 0, 1, 1)), "forward_s"},
      {table_of(unit("head", 1, 1, -1, 1, 1)), "forward_s"},
      {table_of(unit("head", 1, 1, 1, 1e9, 1)), "backward_s"},
      {table_of(unit("head", 1, 1, 1, 1, 1) + "," + unit("head", 1, 1, 1, 1, 1)),
       "unit 1 is the second head with samples 1 and tp 1"},
      {table_of(unit("layer", 1, 1, 1, 1, 1) + "," + unit("layer", 1, 1, 1, 1, 1)),
       "are 16, and small has 8"},
  };
  for (const auto& one : cases) {
    const auto refused = read(one.text);
    cr_assert(!refused, "%s", one.text.c_str());
    cr_assert(refused.error().message().find(one.says) != std::string::npos, "%s: %s", one.says,
              refused.error().message().c_str());
  }
}
