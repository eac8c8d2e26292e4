// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "tools/predict/machine_model.h"

namespace swell::predict {

/// Which rows to fit on: one of each model, chosen by their plans alone, before any time is looked
/// at, so that together they tell the most about all rows (each step takes the row that lowers the
/// expected variance of all predictions the most). Deterministic.
std::vector<std::size_t> choose_rows(const std::vector<TrainingRun>& runs,
                                     const MachineModel& model);

/// The first row of each model, for comparison.
std::vector<std::size_t> first_rows(const std::vector<TrainingRun>& runs);

/// The machine's constants and each model's scale, most likely given what is expected and the
/// times of the fitted rows (a maximum a posteriori estimate).
struct Fit {
  Machine machine;
  std::vector<double> scale;  ///< by run: that of its model
};
Fit fit(const std::vector<TrainingRun>& runs, const std::vector<std::size_t>& fitted,
        const MachineModel& model);

}  // namespace swell::predict
