// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as a plan: read, checked, resolved; what is valid can be timed.
#include <cstdint>
#include <string_view>

#include <cmath>
#include <cstdlib>

#include "core/perf/peak_memory.h"
#include "core/plan/validate.h"
#include "support/plans.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto plan = swell::plan::Plan::parse(text);
  if (!plan) return 0;
  static const auto model = support::small_model();
  static const auto cluster = support::h100_nodes(2);
  static const auto coefficients = support::round_coefficients();
  if (!(swell::plan::Plan::from_json(plan->to_json()).value() == *plan)) std::abort();
  (void)plan->summary();
  if (!swell::plan::validate(*plan, model, cluster)) return 0;
  const auto layout = swell::plan::resolve(*plan, cluster);
  if (!layout || !(swell::plan::name_all(*layout, cluster).gpu_count() == plan->gpu_count()))
    std::abort();
  const swell::perf::PerformanceModel perf(model, cluster, coefficients);
  if (!(perf.iteration_time(*layout).total() > 0)) std::abort();
  (void)swell::perf::MemoryModel(perf).fits(*layout);
  return 0;
}
