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

/// How many jobs were simulated: "60 jobs", or how many of the trace's, and by which option no more
/// of them: "10 of 400 jobs of the trace (--trace-gpus 2490: ...)".
std::string jobs_text(const Results& results, const Experiment& experiment);

/// Returns a sentence that says which costs of changes of plan were used, and their source.
std::string redeployment_text(const Experiment& experiment);

/// Results as a self-contained HTML page that compares policies in drawings. Drawings of a single
/// run show the first seed.
std::string results_html(const Results& results, const Experiment& experiment);

}  // namespace swell::sim
