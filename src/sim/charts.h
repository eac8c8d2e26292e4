// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "sim/experiment.h"

namespace swell::sim {

/// Drawings of the report page, as SVG.

/// Average JCT of each policy with its confidence interval.
std::string jct_bars(const Results& results);
/// Share of jobs that end within a time, over all seeds.
std::string jct_distribution(const Results& results);
/// Distribution of each job's JCT over its JCT under fifo, over all seeds: left of 1 is faster.
std::string jct_ratios(const Results& results);
/// GPUs in use under one policy in the first seed until `until_s`: basic demand below, lent GPUs
/// above. By job, or by size where there are many jobs.
std::string gpus_over_time(const Results& results, std::size_t policy, double until_s);
/// Time by which nearly all jobs have ended under every policy: the end of time axes.
double nearly_all_done_s(const Results& results);
/// Times that decisions took: median, 90th and 99th percentile; empty where no policy decides.
std::string decision_latency(const Results& results);

}  // namespace swell::sim
