// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/worth.h"

#include <algorithm>
#include <cmath>

namespace swell::policy {

namespace {

/// Floor for a job's age and for its time left in weight(): the first seconds are no evidence.
constexpr double kMinAge_s = 10;

/// For fairness, speed is assumed to grow with this power of the GPUs.
constexpr double kPower = 0.9;

/// Aversion that stands for the objective of the best worst ratio when GPUs go from one job to
/// another. A larger one follows the worst job more closely, but also errors of predictions: jobs
/// then take the same GPUs from each other. Idle GPUs go to the worst job first, see level().
constexpr double kFairAversion = 3;

/// Floor for after_pause(): a job keeps this share of its speed, however long it pauses.
constexpr double kMinLeft = 0.01;

}  // namespace

Worth::Worth(const ClusterView& view, const Swell::Options& options, const Belief& belief)
    : view_(view),
      options_(options),
      belief_(belief),
      all_ends_known_(
          std::all_of(view.jobs.begin(), view.jobs.end(), [&](const ElasticJobView& job) {
            return job.remaining_samples >= 0 || !belief.knows(job);
          })) {}

double Worth::utility(double times, double aversion) {
  const double left = 1 - aversion;
  return std::abs(left) < 1e-9 ? std::log(times) : std::pow(times, left) / left;
}

double Worth::weight(const ElasticJobView& job) const {
  const double left_s = job.remaining_samples >= 0 ? job.remaining_samples / belief_.basic(job)
                                                   : view_.now_s - job.started_s;
  return std::pow(std::max(left_s, kMinAge_s),
                  all_ends_known_ ? -options_.shortness : -options_.youth);
}

double Worth::on_one_gpu(const ElasticJobView& job) const {
  return belief_.basic(job) / std::pow(job.training->basic.gpu_count(), kPower);
}

double Worth::gain(const ElasticJobView& job, double before, double after) const {
  const bool is_fair = options_.objective == Objective::fairness;
  const double unit = is_fair ? on_one_gpu(job) : belief_.basic(job);
  const auto more = [&](double aversion) {
    return utility(after / unit, aversion) - utility(before / unit, aversion);
  };
  if (is_fair) return more(kFairAversion);
  if (options_.objective != Objective::completion) return more(0);
  return weight(job) * more(options_.aversion);
}

double Worth::level(const ElasticJobView& job, double throughput) const {
  return options_.objective == Objective::fairness ? throughput / on_one_gpu(job) : 0;
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
  if (job.remaining_samples >= 0) return job.remaining_samples / throughput;
  return std::max(view_.now_s - job.started_s, options_.min_horizon_s);
}

double Worth::after_pause(const ElasticJobView& job, double throughput, double pause_s) const {
  const double share = pause_s / horizon_s(job, throughput);
  return throughput * std::max(1 - share, kMinLeft);
}

}  // namespace swell::policy
