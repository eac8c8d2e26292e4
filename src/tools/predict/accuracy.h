// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "tools/predict/fit.h"

namespace swell::predict {

/// Accuracy of the predictions for one model's rows, except the fitted row. Errors are fractions,
/// |predicted / measured - 1|.
struct ModelAccuracy {
  std::string model;
  int rows = 0;        ///< rows scored
  std::string fitted;  ///< plan of the fitted row
  double fitted_error = 0;
  double mean = 0, p50 = 0, p90 = 0, worst = 0, bias = 0;
};

struct Accuracy {
  int rows = 0;
  double mean = 0, p90 = 0;
  std::vector<ModelAccuracy> models;
  Machine machine;  ///< the constants found by the fit
};

/// Fits on the rows `fitted`, one of each model, and predicts all other rows.
Result<Accuracy> predict_others(const std::vector<TrainingRun>& runs,
                                const std::vector<std::size_t>& fitted, const MachineModel& model);

/// Writes {"rows", "mean_abs_error", "p90_abs_error", "models": {...}, "machine": {...}}.
Json to_json(const Accuracy& accuracy);

}  // namespace swell::predict
