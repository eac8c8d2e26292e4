// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"
#include "sim/experiment.h"

namespace swell::sim {

/// Results as {"policies": {NAME: metrics}, "jobs", "seeds", "wall_s"}. `repeatable`: leaves out
/// what a clock of this machine measured, so that equal runs give equal bytes.
Json results_json(const Results& results, bool repeatable);

/// Results as CSV: a heading, then one line for each policy, seed and job.
std::string results_csv(const Results& results);

/// Results as a self-contained HTML page that compares policies in drawings. Drawings of a single
/// run show the first seed.
std::string results_html(const Results& results, const Experiment& experiment);

}  // namespace swell::sim
