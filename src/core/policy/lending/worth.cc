// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/worth.h"

#include <algorithm>
#include <cmath>

namespace swell::policy {

namespace {

/// Floor for a job's age and for its time left in weight(): the first seconds tell nothing.
constexpr double kMinAge_s = 10;

/// Floor for after_pause(): a job keeps this share of its speed, however long it pauses.
constexpr double kMinLeft = 0.01;

}  // namespace

double Worth::utility(double times) const {
  const double left = 1 - options_.aversion;
  return std::abs(left) < 1e-9 ? std::log(times) : std::pow(times, left) / left;
}

double Worth::weight(const ElasticJobView& job) const {
  if (job.training->remaining_samples >= 0)
    return std::pow(std::max(job.training->remaining_samples / belief_.basic(job), kMinAge_s),
                    -options_.shortness);
  return std::pow(std::max(view_.now_s - job.started_s, kMinAge_s), -options_.youth);
}

double Worth::gain(const ElasticJobView& job, double before, double after) const {
  const double basic = belief_.basic(job);
  return weight(job) * (utility(after / basic) - utility(before / basic));
}

double Worth::loss(const ElasticJobView& job, const CompanionView& companion) const {
  const double alone = belief_.basic(job);
  const double basic = job.training->basic.gpu_count(), all = basic + job.lent_gpus();
  double before = basic;
  for (const CompanionView& other : job.companions)
    if (other.id < companion.id) before += other.held.gpus;
  const double power = std::log(std::max(belief_.now(job) / alone, 1.0)) / std::log(all / basic);
  const auto with = [&](double gpus) { return alone * std::pow(gpus / basic, power); };
  const double lost =
      gain(job, with(before), with(before + companion.held.gpus)) / companion.held.gpus;
  return is_owed(job, companion) ? kOwed * lost : lost;
}

redeploy::Cost Worth::cost_of(const ElasticJobView& job, const plan::Layout& to) const {
  return cost_of_change(job, to, *view_.machines);
}

double Worth::horizon_s(const ElasticJobView& job, double throughput) const {
  if (job.training->remaining_samples >= 0) return job.training->remaining_samples / throughput;
  return std::max(view_.now_s - job.started_s, options_.min_horizon_s);
}

double Worth::after_pause(const ElasticJobView& job, double throughput, double pause_s) const {
  const double share = pause_s / horizon_s(job, throughput);
  return throughput * std::max(1 - share, kMinLeft);
}

}  // namespace swell::policy
