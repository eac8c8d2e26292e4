// SPDX-License-Identifier: GPL-2.0-or-later
// The graph of a schedule, and what it predicts.
#include "core/schedule/evaluate.h"

#include <algorithm>
#include <cmath>
#include <criterion/criterion.h>
#include <limits>
#include <random>

#include "core/perf/modelled.h"
#include "core/perf/sends.h"
#include "core/schedule/drawing.h"
#include "core/schedule/named.h"
#include "core/schedule/text.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::schedule;
using support::near;

namespace {

ChunkCost cost(double forward, double backward, double weights = 0, double send = 0) {
  ChunkCost one;
  one.seconds = {forward, backward, weights};
  one.bytes = {1, weights > 0 ? -0.25 : -1, weights > 0 ? -0.75 : 0};
  one.send_forward_s = one.send_backward_s = send;
  return one;
}

Evaluation predict(const Schedule& schedule, const Costs& costs) {
  const auto graph = Graph::of(schedule);
  cr_assert(graph.ok(), "%s", graph.error().message().c_str());
  cr_assert(costs.check(graph->shape()).ok());
  return evaluate(*graph, costs);
}

Evaluation predict(const Schedule& schedule, const ChunkCost& each) {
  return predict(schedule, Costs::uniform(schedule.shape, each));
}

double peak_of(const Evaluation& found) {
  return *std::max_element(found.peak_bytes.begin(), found.peak_bytes.end());
}

/// Eq. 5 with equal chunks of 1 s: no schedule of whole backward passes is faster.
double eq5(const Shape& shape) {
  return perf::modelled_pipeline(shape.micro_batches, shape.stages, shape.chunks, shape.chunks)
      .total();
}

}  // namespace

// Fig. 3 of the paper, in its green frame: two stages, one chunk, two micro-batches.
Test(schedule_graph, nodes_and_edges_of_the_papers_example) {
  const auto graph = Graph::of(one_forward_one_backward({2, 1, 2}));
  cr_assert(graph.ok());
  int count[kNodeKinds] = {};
  for (const Node& node : graph->nodes()) ++count[static_cast<std::size_t>(node.kind)];
  const int wanted[kNodeKinds] = {4, 4, 0, 2, 2, 2, 2};
  for (int kind = 0; kind < kNodeKinds; ++kind)
    cr_assert_eq(count[kind], wanted[kind], "kind %d: %d", kind, count[kind]);
  for (std::size_t i = 0; i < graph->nodes().size(); ++i) {
    const Node& node = graph->nodes()[i];
    cr_assert_lt(node.previous, static_cast<int>(i), "edges point to the front");
    cr_assert_lt(node.needs, static_cast<int>(i));
    const auto needs = [&](NodeKind kind, int stage) {
      const Node& other = graph->nodes()[static_cast<std::size_t>(node.needs)];
      return other.kind == kind && other.stage == stage && other.micro_batch == node.micro_batch;
    };
    switch (node.kind) {
      case NodeKind::forward:
        cr_assert(node.stage == 0 ? node.needs < 0 : needs(NodeKind::receive_forward, 1));
        break;
      case NodeKind::backward:
        cr_assert(node.stage == 1 ? node.needs < 0 : needs(NodeKind::receive_backward, 0));
        break;
      case NodeKind::send_forward: cr_assert(needs(NodeKind::forward, 0)); break;
      case NodeKind::receive_forward: cr_assert(needs(NodeKind::send_forward, 0)); break;
      case NodeKind::send_backward: cr_assert(needs(NodeKind::backward, 1)); break;
      case NodeKind::receive_backward: cr_assert(needs(NodeKind::send_backward, 1)); break;
      case NodeKind::weights: cr_assert(false); break;
    }
  }
}

Test(schedule_graph, chunks_meet_across_the_ends_of_the_pipeline) {
  const auto graph = Graph::of(interleaved({3, 2, 3}));
  cr_assert(graph.ok());
  int wrapped = 0;
  for (const Node& node : graph->nodes()) {
    if (node.kind != NodeKind::receive_forward || node.stage != 0) continue;
    const Node& sent = graph->nodes()[static_cast<std::size_t>(node.needs)];
    cr_assert(sent.stage == 2 && sent.chunk == 0 && node.chunk == 1);
    ++wrapped;
  }
  cr_assert_eq(wrapped, 3);
  cr_assert(!Graph::of(Schedule{{2, 1, 1}, {}}).ok(), "an invalid schedule has no graph");
}

Test(schedule_evaluate, a_pipeline_with_sends_by_hand) {
  Schedule schedule = one_forward_one_backward({2, 1, 2});
  Costs costs = Costs::uniform(schedule.shape, cost(1, 2, 0, 0.5));
  costs.at(1, 0).seconds = {2, 3, 0};
  costs.static_bytes = {10, 20};
  costs.finish_s = {4, 1};
  const Evaluation found = predict(schedule, costs);
  // Stage 0: F 0-1, F 1-2, B 7-9 (gradients at 6.5 + 0.5), B 12-14. Stage 1: F 1.5-3.5, B 3.5-6.5,
  // F 6.5-8.5, B 8.5-11.5, sent at 12.
  cr_assert(near(found.stage_end_s[1], 11.5 + 1), "%g", found.stage_end_s[1]);
  cr_assert(near(found.stage_end_s[0], 14 + 4), "%g", found.stage_end_s[0]);
  cr_assert(near(found.seconds, 18));
  cr_assert(near(found.peak_bytes[0], 12) && near(found.peak_bytes[1], 21));
  cr_assert(near(found.bytes.back(), 10), "nothing is kept at the end");
}

Test(schedule_evaluate, the_critical_path_is_as_long_as_the_iteration) {
  std::mt19937 random(7);
  for (const auto name : names())
    for (const Shape shape : {Shape{4, 1, 6}, Shape{3, 3, 5}}) {
      const auto schedule = named(name, shape);
      if (!schedule) continue;
      Costs costs = Costs::uniform(shape, {});
      for (ChunkCost& one : costs.chunks)
        for (double* value : {&one.seconds[0], &one.seconds[1], &one.seconds[2],
                              &one.send_forward_s, &one.send_backward_s})
          *value = static_cast<double>(random() % 100) / 10;
      costs.finish_s = {5, 0, 9};
      costs.finish_s.resize(static_cast<std::size_t>(shape.stages), 3);
      const auto graph = Graph::of(*schedule);
      const Evaluation found = evaluate(*graph, costs);
      double begin = 0;
      for (std::size_t i = 0; i < found.critical.size(); ++i) {
        const Node& node = graph->nodes()[static_cast<std::size_t>(found.critical[i])];
        if (i > 0)
          cr_assert(found.critical[i - 1] == node.previous || found.critical[i - 1] == node.needs);
        const ChunkCost& own = costs.at(node.stage, node.chunk);
        const double whole = own.seconds[1] + (graph->splits_weights() ? 0 : own.seconds[2]);
        const double takes[] = {own.seconds[0],      whole, own.seconds[2], own.send_forward_s, 0,
                                own.send_backward_s, 0};
        begin += takes[static_cast<std::size_t>(node.kind)];
        cr_assert(near(begin, found.end_s[static_cast<std::size_t>(found.critical[i])], 1e-9),
                  "no gap on the path");
      }
      const Node& last = graph->nodes()[static_cast<std::size_t>(found.critical.back())];
      cr_assert(near(begin + costs.finish_s[static_cast<std::size_t>(last.stage)], found.seconds));
    }
}

Test(schedule_evaluate, memory_of_the_named_schedules) {
  const auto peak = [](std::string_view name, const Shape& shape) {
    return peak_of(predict(*named(name, shape), cost(1, 1, 1)));
  };
  cr_assert(near(peak("gpipe", {4, 1, 8}), 8), "all micro-batches");
  cr_assert(near(peak("1f1b", {4, 1, 8}), 4), "as many as there are stages");
  cr_assert(near(peak("interleaved", {4, 2, 8}), 2 * 3 + 4 + 1), "Megatron's count, in chunks");
  for (const Shape shape : {Shape{4, 1, 8}, Shape{4, 2, 10}, Shape{8, 3, 24}}) {
    cr_assert(near(peak("memory-minimised", shape), shape.chunks), "one micro-batch");
    cr_assert_leq(peak("zero-bubble", shape), peak("interleaved", shape) + 1e-9);
  }
}

Test(schedule_evaluate, weight_gradients_fill_bubbles) {
  for (const Shape shape : {Shape{4, 1, 8}, Shape{8, 1, 16}, Shape{4, 2, 10}, Shape{8, 2, 8}}) {
    const ChunkCost each = cost(1, 1, 1);
    const double whole = predict(interleaved(shape), each).seconds;
    const double filled = predict(zero_bubble(shape), each).seconds;
    const double work = 3.0 * shape.chunks * shape.micro_batches;
    cr_assert_leq(filled - work, 0.7 * (whole - work), "%g of %g, work %g", filled, whole, work);
  }
}

// FlexTrain, eq. 5: for every number of micro-batches.
Test(schedule_evaluate, no_schedule_is_below_equation_5_and_interleaved_reaches_it) {
  int seen = 0;
  for (const int p : {2, 3, 4, 5, 8, 16, 32})
    for (const int v : {1, 2, 3, 5, 8})
      for (int m = 1; m <= 4 * p; m += p <= 5 ? 1 : p / 4 + (m % 3 == 0 ? 1 : 0)) {
        const Shape shape{p, v, m};
        const double backward = m % 2 == 0 ? 2 : 1;
        const double bound = eq5(shape) * (1 + backward);
        for (const auto name : names()) {
          if (name == "zero-bubble" || (p > 8 && name != "interleaved" && m % 5 != 0)) continue;
          const auto schedule = named(name, shape);
          if (!schedule) continue;
          const double seconds = predict(*schedule, cost(1, backward)).seconds;
          cr_assert_geq(seconds, bound * (1 - 1e-9), "%.*s of %d, %d, %d",
                        static_cast<int>(name.size()), name.data(), p, v, m);
          if (name == "interleaved")
            cr_assert_leq(seconds, bound * 1.000001, "%d, %d, %d: %g of %g", p, v, m, seconds,
                          bound);
          ++seen;
        }
      }
  cr_assert_gt(seen, 1000);
}

Test(schedule_evaluate, a_last_group_smaller_than_the_pipeline_is_deep_costs_time) {
  const Shape shape{4, 2, 6};
  const double uneven = predict(interleaved_in_groups(shape, {4, 2}, 6 + 4), cost(1, 2)).seconds;
  cr_assert(near(uneven, 55) && near(predict(interleaved(shape), cost(1, 2)).seconds, 45));
}

// The closed forms of src/core/perf stay as the fast path of one chunk.
Test(schedule_evaluate, pipeline_sum_is_the_evaluator_for_equal_stages) {
  for (const int p : {1, 2, 4, 7})
    for (const int m : {7, 8, 30}) {
      const Schedule schedule = one_forward_one_backward({p, 1, m});
      Costs costs = Costs::uniform(schedule.shape, cost(0.7, 1.6));
      costs.finish_s.assign(static_cast<std::size_t>(p), 0.3);
      costs.finish_s.back() = 2.5;
      perf::PipelineSum sum;
      for (int i = 0; i < p; ++i)
        sum.add({0.7, 1.6, 0, costs.finish_s[static_cast<std::size_t>(i)], 0});
      cr_assert(near(predict(schedule, costs).seconds, sum.finish(m).total(), 1e-12), "%d, %d", p,
                m);
    }
}

Test(schedule_evaluate, pipeline_sums_are_near_the_evaluator_for_unequal_stages_and_sends) {
  std::mt19937 random(11);
  const auto draw = [&](double from, double to) {
    return from + (to - from) * static_cast<double>(random() % 1000) / 1000;
  };
  double worst = 0, sum_of = 0;
  for (int round = 0; round < 200; ++round) {
    const int p = 2 + static_cast<int>(random() % 7), m = 3 * p + static_cast<int>(random() % 20);
    const Schedule schedule = one_forward_one_backward({p, 1, m});
    Costs costs = Costs::uniform(schedule.shape, {});
    perf::PipelineSum plain;
    perf::SendingPipelineSum sending;
    const bool sends = round % 2 == 1;
    double before = 0;
    for (int i = 0; i < p; ++i) {
      const double forward = draw(0.8, 1.2), send = sends ? draw(0, 0.6) : 0;
      costs.at(i, 0).seconds = {forward, 2 * forward, 0};
      costs.at(i, 0).send_forward_s = send;
      costs.at(i, 0).send_backward_s = before;  // as long as the activations that came
      const perf::StageTimes times{forward, 2 * forward, 0, 0.2, 0};
      costs.finish_s.push_back(0.2);
      plain.add(times);
      sending.add(times, before);
      before = send;
    }
    const double told = (sends ? sending.finish(m) : plain.finish(m)).total();
    const double error = std::abs(predict(schedule, costs).seconds / told - 1);
    worst = std::max(worst, error);
    sum_of += error;
  }
  cr_assert_lt(worst, 0.10, "at worst %g", worst);
  cr_assert_lt(sum_of / 200, 0.02, "on average %g", sum_of / 200);
}

Test(schedule_evaluate, wrong_costs_are_refused_by_name) {
  const Shape shape{2, 2, 4};
  const auto said = [&](auto change) {
    Costs costs = Costs::uniform(shape, cost(1, 2));
    change(costs);
    const auto valid = costs.check(shape);
    return valid ? std::string() : valid.error().message();
  };
  const auto has = [](const std::string& text, const char* words) {
    cr_assert(text.find(words) != std::string::npos, "wanted \"%s\" in \"%s\"", words,
              text.c_str());
  };
  cr_assert(said([](Costs&) {}).empty());
  has(said([](Costs& costs) { costs.at(1, 0).seconds[1] = -1; }),
      "a node of stage 1, chunk 0 takes -1 s");
  has(said([](Costs& costs) { costs.at(0, 1).send_forward_s = std::nan(""); }),
      "a node of stage 0, chunk 1 takes nan s");
  has(said([](Costs& costs) { costs.at(1, 1).bytes[0] = std::numeric_limits<double>::infinity(); }),
      "changes memory by inf bytes");
  has(said([](Costs& costs) { costs.chunks.pop_back(); }), "times are given for 2 stages of 2");
  has(said([](Costs& costs) { costs.shape.stages = 3; }), "times are given for 3 stages of 2");
  has(said([](Costs& costs) { costs.finish_s = {1}; }), "seconds after the last pass");
  has(said([](Costs& costs) {
        costs.static_bytes = {1, -2};
      }),
      "bytes of weights of stage 1 are -2");
}

Test(schedule_evaluate, a_drawing_has_a_box_for_each_pass) {
  const Shape shape{2, 2, 3};
  Costs costs = Costs::uniform(shape, {{1, 1, 1}, {1e9, 0, -1e9}});
  for (const Schedule& schedule : {interleaved(shape), zero_bubble(shape)}) {
    const auto svg = to_svg(schedule, costs);
    cr_assert(svg.ok(), "%s", svg.ok() ? "" : svg.error().message().c_str());
    std::size_t boxes = 0, passes = 0;
    for (std::size_t at = 0; (at = svg->find("<title>", at)) != std::string::npos; ++at) ++boxes;
    for (const Order& order : schedule.orders) passes += order.size();
    cr_assert_eq(boxes, passes);
    cr_assert_neq(svg->find("stage 1: F of chunk 1, micro-batch 2"), std::string::npos);
    cr_assert_eq(svg->rfind("</svg>"), svg->size() - 7);
  }
  costs.shape.stages = 3;
  cr_assert_not(to_svg(gpipe(shape), costs).ok());
  const Shape large{100, 1, 300};
  cr_assert_eq(to_svg(gpipe(large), Costs::uniform(large, {})).error().message(),
               "the schedule has 60000 passes; at most 50000 are drawn");
}
