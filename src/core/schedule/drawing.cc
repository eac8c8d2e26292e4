// SPDX-License-Identifier: BSD-3-Clause
#include "core/schedule/drawing.h"

#include "core/count_of.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::schedule {

namespace {

constexpr double kLeft = 150, kRight = 20, kTop = 34, kWidth = 1200, kRow = 28, kBox = 22;
constexpr double kRoomForNumber = 14;  ///< narrower boxes do not show the micro-batch
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr const char* kColours[kKinds] = {"#0f7bd4", "#d9541e", "#0a9a6b"};

double seconds_of(const Operation& pass, const ChunkCost& cost, bool splits) {
  double seconds = cost.seconds[static_cast<std::size_t>(pass.kind)];
  if (pass.kind == Kind::backward && !splits)
    seconds += cost.seconds[static_cast<std::size_t>(Kind::weights)];
  return seconds;
}

std::string box(int stage, const Operation& pass, double end_s, double took_s, double scale,
                int chunks) {
  const double x = kLeft + (end_s - took_s) * scale, width = took_s * scale;
  const double y = kTop + kRow * stage;
  const double shade = 1 - 0.6 * pass.chunk / std::max(chunks, 2);
  std::string text = fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
      "fill-opacity=\"{:.2f}\"><title>stage {}: {}, {:.3f} to {:.3f} ms</title></rect>\n",
      x, y, width, kBox, kColours[static_cast<std::size_t>(pass.kind)], shade, stage,
      to_string(pass), 1e3 * (end_s - took_s), 1e3 * end_s);
  if (width >= kRoomForNumber)
    text += fmt::format("<text class=\"n\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n", x + width / 2,
                        y + 15, pass.micro_batch);
  return text;
}

}  // namespace

Result<std::string> to_svg(const Schedule& schedule, const Costs& costs) {
  const auto graph = Graph::of(schedule);
  if (!graph) return graph.error();
  if (auto good = costs.check(schedule.shape); !good) return good.error();
  std::size_t passes = 0;
  for (const Order& order : schedule.orders) passes += order.size();
  if (passes > kMaxDrawnPasses)
    return Error(fmt::format("the schedule has {}; at most {} are drawn", count_of(passes, "pass"),
                             kMaxDrawnPasses));
  const Evaluation found = evaluate(*graph, costs);
  const double scale = found.seconds > 0 ? (kWidth - kLeft - kRight) / found.seconds : 0;
  const double height = kTop + kRow * schedule.shape.stages + 10;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n<style>text {{ font: 12px sans-serif }} .n {{ fill: #fff; "
      "font-size: 10px; text-anchor: middle }}</style>\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"#fff\"/>\n<text x=\"{2}\" y=\"20\">one iteration: {3:.3f} ms; F blue, B orange, W "
      "green; chunks by shade, numbers are micro-batches</text>\n",
      kWidth, height, kLeft, 1e3 * found.seconds);
  for (int stage = 0; stage < schedule.shape.stages; ++stage)
    svg += fmt::format("<text x=\"8\" y=\"{:.1f}\">stage {}, {:.1f} GiB</text>\n",
                       kTop + kRow * stage + 15, stage,
                       found.peak_bytes[static_cast<std::size_t>(stage)] / kGiB);
  const auto& nodes = graph->nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (!computes(node.kind)) continue;
    const Operation pass{static_cast<Kind>(node.kind), node.chunk, node.micro_batch};
    svg += box(node.stage, pass, found.end_s[i],
               seconds_of(pass, costs.at(node.stage, node.chunk), graph->splits_weights()), scale,
               schedule.shape.chunks);
  }
  return svg + "</svg>\n";
}

}  // namespace swell::schedule
