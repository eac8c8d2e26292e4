// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "sim/experiment.h"

namespace swell::sim {

/// The drawings of the page, as SVG.

/// Average JCT of each policy with its confidence interval.
std::string jct_bars(const Results& results);
/// Share of jobs that are done within a time, over all seeds.
std::string jct_distribution(const Results& results);
/// Share of jobs by their JCT over their JCT under fifo, over all seeds: left of 1 is faster.
std::string jct_ratios(const Results& results);
/// GPUs in use of one policy in the first seed, basic demand below and what is lent above, until
/// `until_s`. By job, or by size where there are many.
std::string gpus_over_time(const Results& results, std::size_t policy, double until_s);
/// The moment by which nearly all jobs have ended under every policy: where time axes end.
double nearly_all_done_s(const Results& results);
/// How long decisions took: median, and 90th and 99th percentile; empty where no policy decides.
std::string decision_latency(const Results& results);

}  // namespace swell::sim
