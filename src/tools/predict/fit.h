// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "tools/predict/machine_model.h"

namespace swell::predict {

/// Chooses the rows to fit on: one of each model. Looks at their plans only, not at measured times,
/// and chooses rows that together tell most about all rows: each step takes the row that lowers the
/// expected variance of all predictions most. Deterministic.
std::vector<std::size_t> choose_rows(const std::vector<TrainingRun>& runs,
                                     const MachineModel& model);

/// Chooses the first row of each model, for comparison.
std::vector<std::size_t> first_rows(const std::vector<TrainingRun>& runs);

/// Constants of the machine and the scale of each model: the maximum a posteriori estimate, given
/// the expected values and the times of the fitted rows.
struct Fit {
  Machine machine;
  std::vector<double> scale;  ///< scale of each run's model
};
Fit fit(const std::vector<TrainingRun>& runs, const std::vector<std::size_t>& fitted,
        const MachineModel& model);

}  // namespace swell::predict
