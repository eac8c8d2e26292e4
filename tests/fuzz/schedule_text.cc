// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a schedule: read, checked, written again, predicted.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/schedule/evaluate.h"
#include "core/schedule/text.h"

using namespace swell::schedule;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = parse(text);
  if (!read) {
    if (read.error().message().empty()) std::abort();
    return 0;
  }
  std::size_t passes = 0;
  for (const Order& order : read->orders) passes += order.size();
  if (passes > 20000) return 0;  // a few letters repeat to millions; the rest would take seconds
  if (!check(*read, read->shape)) std::abort();
  const auto again = parse(to_text(*read));
  if (!again || !(*again == *read)) std::abort();
  const auto graph = Graph::of(*read);
  if (!graph) std::abort();
  ChunkCost cost;
  cost.seconds = {1, 1, 1};
  cost.bytes = {2, -1, -1};
  const Costs costs = Costs::uniform(read->shape, cost);
  const Evaluation found = evaluate(*graph, costs);
  const double work = 3.0 * read->shape.chunks * read->shape.micro_batches;
  if (found.seconds < work || found.critical.empty()) std::abort();
  for (const double bytes : found.peak_bytes)
    if (bytes < 2 || !std::isfinite(bytes)) std::abort();
  return 0;
}
