// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"
#include "sim/experiment.h"

namespace swell::sim {

/// {"policies": {NAME: metrics}, "jobs", "seeds", "wall_s"}. `repeatable`: without anything that a
/// clock of this machine measured, so that equal runs give equal bytes.
Json results_json(const Results& results, bool repeatable);

/// A heading, then one line a policy, seed and job.
std::string results_csv(const Results& results);

/// A page that stands alone: how policies compare, drawn. Of the first seed, where it is about one.
std::string results_html(const Results& results, const Experiment& experiment);

}  // namespace swell::sim
