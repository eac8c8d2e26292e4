// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"
#include "sim/experiment.h"

namespace swell::sim {

/// Returns the results as {"policies": {NAME: metrics}, "jobs", "seeds", "wall_s"}. `repeatable`:
/// leaves out times that were measured on this machine, so that equal runs give equal bytes.
Json results_json(const Results& results, bool repeatable);

/// Returns the results as CSV: a heading, then one line for each policy, seed and job.
std::string results_csv(const Results& results);

/// Returns the number of simulated jobs as text: "60 jobs". For a part of a trace, also the number
/// of its jobs, and the option that left out the others: "10 of 400 jobs of the trace (--trace-gpus
/// 2490: ...)".
std::string jobs_text(const Results& results, const Experiment& experiment);

/// Returns a sentence that says which costs of changes of plan were used, and their source.
std::string redeployment_text(const Experiment& experiment);

/// Returns the results as a self-contained HTML page that compares policies in charts. Charts of a
/// single run show the first seed.
std::string results_html(const Results& results, const Experiment& experiment);

}  // namespace swell::sim
