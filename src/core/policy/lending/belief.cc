// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/belief.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/policy/lending/expansions.h"

namespace swell::policy {

namespace {

/// Error expected before anything was measured, and the number of measurements that it counts as.
constexpr double kUsualError = 0.03, kUsual = 2;
/// Number of measurements at which half of the error that a job's plans share is believed: to
/// correct predictions, and to separate it from the errors that they do not share.
constexpr double kDoubtOfOwn = 1, kDoubtOfShared = 0.5;
/// Measurements are capped at this logarithm of their error.
constexpr double kMaxError = 1;
/// Number of standard deviations, above the usual error, by which the best of many plans is
/// predicted too fast.
constexpr double kCurse = 1.5;
/// Error above which only few plans are compared.
constexpr double kTooFarOff = 0.1;

/// The speed of one plan in samples a second.
struct Speed {
  double expected = 0;
  double error = 0;  ///< logarithm of predicted over measured
  bool measured = false;
};

Speed speed_of(double predicted, double measured) {
  if (!(measured > 0) || !(predicted > 0)) return {predicted, 0, false};
  const double error = std::clamp(std::log(predicted / measured), -kMaxError, kMaxError);
  return {predicted / std::exp(error), error, true};
}

/// Standard deviation of these errors of one job's plans, beyond what they share.
double spread_of(const std::vector<double>& errors) {
  const auto count = static_cast<double>(errors.size());
  const double shared =
      std::accumulate(errors.begin(), errors.end(), 0.0) / (count + kDoubtOfShared);
  double squares = kUsual * kUsualError * kUsualError;
  for (const double error : errors) squares += (error - shared) * (error - shared);
  return std::sqrt(squares / (count + kUsual));
}

/// Returns the median, of two the lower. REQUIRES: `values` is not empty.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double curse_of(double error) { return std::exp(-kCurse * std::max(0.0, error - kUsualError)); }

/// Returns the owner that a job's errors count for; the job itself where its owner is unknown.
std::pair<std::int64_t, JobId> owner_of(const ElasticJobView& job) {
  return {job.owner, job.owner < 0 ? job.id : 0};
}

}  // namespace

Belief::Belief(const ClusterView& view, const ScaleTables& tables, const ScaleTables* few)
    : tables_(tables), few_(few) {
  std::map<std::pair<std::int64_t, JobId>, std::vector<double>> by_owner;
  for (const ElasticJobView& job : view.jobs) {
    if (!Expansions::can_plan(job, view)) continue;
    const Training& training = *job.training;
    const bool is_basic = training.current == training.basic;
    const Speed basic =
        speed_of(tables.throughput(training, training.basic, *view.machines),
                 is_basic && training.measured_throughput > 0 ? training.measured_throughput
                                                              : training.measured_basic);
    Speed now;  // what it runs beyond its basic plan
    if (!is_basic)
      now = speed_of(tables.throughput(training, training.current, *view.machines),
                     training.measured_throughput);
    std::vector<double> errors;
    if (basic.measured) errors.push_back(basic.error);
    if (now.measured) errors.push_back(now.error);
    Speeds speeds;
    speeds.basic = basic.expected;
    speeds.now = is_basic ? basic.expected : now.expected;
    const auto measured = static_cast<double>(errors.size());
    speeds.correction = std::exp(-(basic.error + now.error) / (measured + kDoubtOfOwn));
    speeds.own_error = spread_of(errors);
    if (!errors.empty()) by_owner[owner_of(job)].push_back(speeds.own_error);
    speeds_.emplace(job.id, speeds);
  }
  std::map<std::pair<std::int64_t, JobId>, double> owners;
  for (const auto& [owner, errors] : by_owner) owners[owner] = median(errors);
  for (const ElasticJobView& job : view.jobs) {
    const auto found = speeds_.find(job.id);
    if (found == speeds_.end()) continue;
    Speeds& speeds = found->second;
    std::vector<double> others;
    for (const auto& [owner, error] : owners)
      if (owner != owner_of(job)) others.push_back(error);
    speeds.error = speeds.own_error;
    if (others.size() >= kMinOwners)
      speeds.error = std::max(speeds.error, std::min(median(std::move(others)), kMaxOfOthers));
    speeds.others = curse_of(speeds.error) / curse_of(speeds.own_error);
    speeds.correction *= curse_of(speeds.error);
  }
}

bool Belief::too_far_off(const ElasticJobView& job) const {
  return speeds_.at(job.id).own_error > kTooFarOff;
}

}  // namespace swell::policy
