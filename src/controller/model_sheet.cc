// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/model_sheet.h"

#include <fmt/format.h>
#include <limits>
#include <utility>

#include "core/count_of.h"
#include "core/perf/coefficients.h"
#include "core/perf/performance_model.h"
#include "core/plan/validate.h"

namespace swell::controller {

namespace {

constexpr int kMaxSamples = 1 << 16;  // of a micro-batch, as of reports (job_training.cc)
/// Numbers of micro-batches that the plan over a job's own GPUs is looked for with are powers of
/// two, up to this; so many that make it no faster end the search.
constexpr int kMaxMicroBatches = 4096, kMaxSlower = 3;

std::optional<plan::Layout> fastest(const models::Model& model,
                                    const perf::Coefficients& coefficients, const HeldGpus& held,
                                    const cluster::Cluster& machines,
                                    const plan::Allocations& allocations) {
  const perf::PerformanceModel performance(model, machines, coefficients, perf::Sends::counted);
  std::optional<plan::Layout> best;
  double least_s = std::numeric_limits<double>::infinity();
  int slower = 0;
  for (int count = 1; count <= kMaxMicroBatches && model.global_batch % count == 0; count *= 2) {
    if (model.global_batch / count > kMaxSamples) continue;
    auto layout = symmetric_layout(model, coefficients, held, count, machines, allocations);
    if (!layout) continue;
    const double seconds = performance.iteration_time(*layout).total();
    if (!(seconds < least_s)) {
      if (++slower == kMaxSlower) break;
      continue;
    }
    slower = 0;
    least_s = seconds;
    best = std::move(layout);
  }
  return best;
}

std::optional<plan::Layout> layout_of(const plan::Plan& plan, const models::Model& model,
                                      const HeldGpus& held, const cluster::Cluster& machines) {
  if (!plan::validate(plan, model, machines)) return std::nullopt;
  auto layout = plan::resolve(plan, machines);
  if (!layout || gpus_of(*layout) != held) return std::nullopt;
  return std::move(*layout);
}

}  // namespace

Result<ModelSheet> ModelSheet::read(const Json& json) {
  auto model = models::model_from_json(json);
  if (!model) return model.error();
  if (auto good = models::check_planned_for(*model); !good) return good.error();
  if (auto good = models::check_runs(*model); !good) return good.error();
  ModelSheet sheet;
  sheet.model_ = std::make_shared<const models::Model>(std::move(*model));
  return sheet;
}

std::string ModelSheet::summary() const {
  return fmt::format("{}, {:.2g} parameters, {} a step", model_->name, model_->parameters(),
                     count_of(model_->global_batch, "sample"));
}

std::shared_ptr<const policy::Training> ModelSheet::seen(
    const HeldGpus& basic, const HeldGpus& all, const std::optional<plan::Plan>& decided,
    const std::shared_ptr<const cluster::Cluster>& machines,
    const plan::Allocations& allocations) const {
  if (machines == nullptr || basic.empty()) return nullptr;
  if (seen_.is_to(machines, basic, all, decided, allocations)) return seen_.get();
  auto coefficients =
      std::make_shared<perf::Coefficients>(perf::expected_coefficients(*model_, *machines));
  perf::expect_launches(*coefficients, *model_, *machines);
  auto before = fastest(*model_, *coefficients, basic, *machines, allocations);
  if (!before) return nullptr;
  std::optional<plan::Layout> now;
  if (decided) now = layout_of(*decided, *model_, all, *machines);
  if (now) allocations.label(*now);
  if (!now && all == basic) now = before;
  if (!now)
    now = symmetric_layout(*model_, *coefficients, all, before->micro_batches, *machines,
                           allocations);
  if (!now) return nullptr;
  auto training = std::make_shared<policy::Training>();
  training->model = model_;
  training->coefficients = std::move(coefficients);
  training->source = planner::ScaleSource::data_sheets;
  training->basic = std::move(*before);
  training->current = std::move(*now);
  return seen_.set(std::move(training));
}

}  // namespace swell::controller
