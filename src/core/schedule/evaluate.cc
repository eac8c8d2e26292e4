// SPDX-License-Identifier: BSD-3-Clause
#include "core/schedule/evaluate.h"

#include "core/count_of.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace swell::schedule {

namespace {

/// Returns the seconds of each kind of node, by stage and chunk.
std::vector<double> times_of(const Graph& graph, const Costs& costs) {
  std::vector<double> times;
  times.reserve(costs.chunks.size() * kNodeKinds);
  for (const ChunkCost& cost : costs.chunks) {
    const double backward = cost.seconds[1] + (graph.splits_weights() ? 0 : cost.seconds[2]);
    times.insert(times.end(), {cost.seconds[0], backward, cost.seconds[2], cost.send_forward_s, 0,
                               cost.send_backward_s, 0});
  }
  return times;
}

Result<void> check_list(const std::vector<double>& list, const char* what, int stages) {
  if (!list.empty() && list.size() != static_cast<std::size_t>(stages))
    return Error(fmt::format("{} are given for {}, the plan has {}", what,
                             count_of(list.size(), "stage"), stages));
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!std::isfinite(list[i]) || list[i] < 0)
      return Error(fmt::format("{} of stage {} are {}; a finite number of 0 or more is needed",
                               what, i, list[i]));
  return {};
}

}  // namespace

Costs Costs::uniform(const Shape& shape, const ChunkCost& cost) {
  return {
      shape,
      std::vector<ChunkCost>(
          static_cast<std::size_t>(shape.stages) * static_cast<std::size_t>(shape.chunks), cost),
      {},
      {}};
}

ChunkCost& Costs::at(int stage, int chunk) noexcept {
  return chunks[static_cast<std::size_t>(stage) * static_cast<std::size_t>(shape.chunks) +
                static_cast<std::size_t>(chunk)];
}

const ChunkCost& Costs::at(int stage, int chunk) const noexcept {
  return chunks[static_cast<std::size_t>(stage) * static_cast<std::size_t>(shape.chunks) +
                static_cast<std::size_t>(chunk)];
}

Result<void> Costs::check(const Shape& of) const {
  if (shape.stages != of.stages || shape.chunks != of.chunks ||
      chunks.size() != static_cast<std::size_t>(of.stages) * static_cast<std::size_t>(of.chunks))
    return Error(fmt::format(
        "times are given for {} of {}, the plan has {} of {}; measure this plan",
        count_of(shape.stages, "stage"), count_of(shape.chunks, "chunk"), of.stages, of.chunks));
  for (int stage = 0; stage < shape.stages; ++stage)
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const ChunkCost& cost = at(stage, chunk);
      for (const double seconds : {cost.seconds[0], cost.seconds[1], cost.seconds[2],
                                   cost.send_forward_s, cost.send_backward_s})
        if (!std::isfinite(seconds) || seconds < 0)
          return Error(
              fmt::format("a node of stage {}, chunk {} takes {} s; a finite number of 0 "
                          "or more is needed",
                          stage, chunk, seconds));
      for (const double bytes : cost.bytes)
        if (!std::isfinite(bytes))
          return Error(
              fmt::format("a node of stage {}, chunk {} changes memory by {} bytes; a "
                          "finite number is needed",
                          stage, chunk, bytes));
    }
  if (const auto valid = check_list(static_bytes, "bytes of weights", of.stages); !valid)
    return valid;
  return check_list(finish_s, "seconds after the last pass", of.stages);
}

Evaluation evaluate(const Graph& graph, const Costs& costs) {
  const std::vector<double> times = times_of(graph, costs);
  const std::vector<Node>& nodes = graph.nodes();
  const std::size_t stages = static_cast<std::size_t>(graph.shape().stages);
  const std::size_t chunks = static_cast<std::size_t>(graph.shape().chunks);
  const bool splits = graph.splits_weights();
  Evaluation found;
  found.end_s.resize(nodes.size());
  found.bytes.resize(nodes.size());
  found.stage_end_s.assign(stages, 0);
  found.peak_bytes = costs.static_bytes;
  found.peak_bytes.resize(stages, 0);
  std::vector<double> held = found.peak_bytes;
  std::vector<std::int32_t> last(stages, -1);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const std::size_t stage = static_cast<std::size_t>(node.stage);
    const std::size_t chunk = stage * chunks + static_cast<std::size_t>(node.chunk);
    double begin = 0;
    if (node.previous >= 0) begin = found.end_s[static_cast<std::size_t>(node.previous)];
    if (node.needs >= 0) begin = std::max(begin, found.end_s[static_cast<std::size_t>(node.needs)]);
    found.end_s[i] = begin + times[chunk * kNodeKinds + static_cast<std::size_t>(node.kind)];
    if (computes(node.kind)) {
      const auto& bytes = costs.chunks[chunk].bytes;
      held[stage] += bytes[static_cast<std::size_t>(node.kind)];
      if (!splits && node.kind == NodeKind::backward) held[stage] += bytes[2];
      found.peak_bytes[stage] = std::max(found.peak_bytes[stage], held[stage]);
      last[stage] = static_cast<std::int32_t>(i);
    }
    found.bytes[i] = held[stage];
  }
  std::size_t slowest = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    if (last[stage] >= 0)
      found.stage_end_s[stage] = found.end_s[static_cast<std::size_t>(last[stage])];
    if (!costs.finish_s.empty()) found.stage_end_s[stage] += costs.finish_s[stage];
    if (found.stage_end_s[stage] > found.stage_end_s[slowest]) slowest = stage;
  }
  found.seconds = found.stage_end_s[slowest];
  for (std::int32_t at = last[slowest]; at >= 0;) {
    found.critical.push_back(at);
    const Node& node = nodes[static_cast<std::size_t>(at)];
    const auto end_of = [&](std::int32_t one) {
      return one < 0 ? -1.0 : found.end_s[static_cast<std::size_t>(one)];
    };
    at = end_of(node.needs) > end_of(node.previous) ? node.needs : node.previous;
  }
  std::reverse(found.critical.begin(), found.critical.end());
  return found;
}

}  // namespace swell::schedule
