// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/measured_speeds.h"

#include <algorithm>
#include <cmath>

#include "core/perf/performance_model.h"

namespace swell::policy {

namespace {

/// Error expected before anything was measured, and the number of measurements that it counts as.
constexpr double kUsualError = 0.03, kUsual = 2;
/// Number of measurements at which half of the error that a job's plans share is believed: to
/// correct predictions, and to separate it from the errors that they do not share.
constexpr double kDoubtOfOwn = 1, kDoubtOfShared = 0.5;
/// Logarithms of errors are capped at this, and rounded to steps, so that scale tables, which take
/// long to make, stay good while a job reports nearly the same speed.
constexpr double kMaxError = 1, kStepOfError = 0.02;
/// Number of standard deviations, above the usual error, by which the best of many plans is
/// predicted too fast. It is small, since a plan that was tried in vain costs two pauses, and one
/// that was not tried costs the whole rest of the job.
constexpr double kCurse = 0.3;

/// Returns the sum of the logarithms of measured over predicted time.
double sum_of_errors(const perf::MeasuredPlans& measured) {
  double sum = 0;
  for (const perf::MeasuredPlans::Plan& plan : measured.plans) sum += std::log(plan.factor);
  return sum;
}

}  // namespace

void add_speed(std::vector<MeasuredSpeed>& speeds, MeasuredSpeed speed) {
  const std::uint64_t shape = perf::shape_of(speed.layout);
  std::erase_if(speeds,
                [&](const MeasuredSpeed& one) { return perf::shape_of(one.layout) == shape; });
  if (speeds.size() >= MeasuredSpeed::kMax) speeds.erase(speeds.begin() + 1);
  speeds.push_back(std::move(speed));
}

double winners_curse(double error) noexcept {
  return std::exp(-kCurse * std::max(0.0, error - kUsualError));
}

double error_of(const perf::MeasuredPlans& measured) {
  const auto count = static_cast<double>(measured.plans.size());
  const double shared = sum_of_errors(measured) / (count + kDoubtOfShared);
  double squares = kUsual * kUsualError * kUsualError;
  for (const perf::MeasuredPlans::Plan& plan : measured.plans)
    squares += std::pow(std::log(plan.factor) - shared, 2);
  return std::sqrt(squares / (count + kUsual));
}

std::shared_ptr<const perf::Coefficients> corrected(
    const std::shared_ptr<const perf::Coefficients>& coefficients, const models::Model& model,
    const cluster::Cluster& machines, const std::vector<MeasuredSpeed>& speeds) {
  const perf::PerformanceModel predictions(model, machines, *coefficients, perf::Sends::counted);
  perf::MeasuredPlans measured;
  for (const auto& [layout, samples_per_s] : speeds) {
    const double predicted = predictions.throughput(layout);
    if (!(predicted > 0) || !(samples_per_s > 0)) continue;
    const double error = std::clamp(std::log(predicted / samples_per_s), -kMaxError, kMaxError);
    measured.plans.push_back(
        {perf::shape_of(layout), std::exp(std::round(error / kStepOfError) * kStepOfError)});
  }
  if (measured.empty()) return coefficients;
  const auto count = static_cast<double>(measured.plans.size());
  measured.others =
      std::exp(sum_of_errors(measured) / (count + kDoubtOfOwn)) / winners_curse(error_of(measured));
  auto made = std::make_shared<perf::Coefficients>(*coefficients);
  made->measured = std::move(measured);
  return made;
}

}  // namespace swell::policy
