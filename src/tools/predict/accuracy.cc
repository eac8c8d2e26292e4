// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/accuracy.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace swell::predict {

namespace {

/// Returns the smallest value that is not exceeded by at least the share `share` of the sorted
/// values.
double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

Result<Accuracy> predict_others(const std::vector<TrainingRun>& runs,
                                const std::vector<std::size_t>& fitted, const MachineModel& model) {
  const Fit found = fit(runs, fitted, model);
  Accuracy accuracy;
  accuracy.machine = found.machine;
  std::vector<double> all;
  for (std::size_t own : fitted) {
    ModelAccuracy one;
    one.model = runs[own].model_name();
    one.fitted = fmt::format("tp{} dp{} pp{} micro {} global {}", runs[own].tp, runs[own].dp,
                             runs[own].pp, runs[own].micro_batch, runs[own].global_batch);
    std::vector<double> errors, signed_errors;
    for (std::size_t run = 0; run < runs.size(); ++run) {
      if (!runs[run].same_model(runs[own])) continue;
      const double off =
          model.iteration_s(runs[run], found.machine, found.scale[run]) / runs[run].iteration_s - 1;
      if (run == own) {
        one.fitted_error = std::abs(off);
        continue;
      }
      signed_errors.push_back(off);
      errors.push_back(std::abs(off));
    }
    all.insert(all.end(), errors.begin(), errors.end());
    std::sort(errors.begin(), errors.end());
    one.rows = static_cast<int>(errors.size());
    one.mean = mean(errors);
    one.bias = mean(signed_errors);
    one.p50 = percentile(errors, 0.5);
    one.p90 = percentile(errors, 0.9);
    one.worst = errors.empty() ? 0 : errors.back();
    accuracy.models.push_back(std::move(one));
  }
  if (all.empty())
    return Error("every row was needed for fitting; a model needs at least 2 rows to be scored");
  accuracy.rows = static_cast<int>(all.size());
  accuracy.mean = mean(all);
  std::sort(all.begin(), all.end());
  accuracy.p90 = percentile(all, 0.9);
  return accuracy;
}

Json to_json(const Accuracy& accuracy) {
  Json models = Json::object();
  for (const ModelAccuracy& one : accuracy.models) {
    std::string key = one.model;
    for (int again = 2; models.has(key.c_str()); ++again)
      key = fmt::format("{}-{}", one.model, again);
    models.set(key.c_str(), Json::object({{"rows", one.rows},
                                          {"mean_abs_error", one.mean},
                                          {"p50_abs_error", one.p50},
                                          {"p90_abs_error", one.p90},
                                          {"max_abs_error", one.worst},
                                          {"bias", one.bias},
                                          {"fitted_row", one.fitted},
                                          {"fitted_row_error", one.fitted_error}}));
  }
  Json machine = Json::object();
  for (std::size_t i = 0; i < Machine::kCount; ++i)
    machine.set(Machine::expected()[i].name, accuracy.machine.value[i]);
  return Json::object({{"rows", accuracy.rows},
                       {"mean_abs_error", accuracy.mean},
                       {"p90_abs_error", accuracy.p90},
                       {"models", models},
                       {"machine", machine}});
}

}  // namespace swell::predict
