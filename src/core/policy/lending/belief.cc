// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/belief.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/policy/lending/expansions.h"

namespace swell::policy {

namespace {

/// The error expected before anything was measured, which counts as so many measurements.
constexpr double kUsualError = 0.03, kUsual = 2;
/// An error that a job's plans share, or all plans of the view, is half believed at so many
/// measurements.
constexpr double kDoubtOfOwn = 1, kDoubtOfAll = 0.5;
/// A measurement further off than this factor of e tells no more.
constexpr double kMaxError = 1;
/// Errors by which the best of many plans is too good, above the usual error.
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

}  // namespace

Belief::Belief(const ClusterView& view, const ScaleTables& tables) {
  std::vector<double> errors;
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
    if (basic.measured) errors.push_back(basic.error);
    if (now.measured) errors.push_back(now.error);
    Speeds speeds{basic.expected, is_basic ? basic.expected : now.expected, 1};
    const int measured = (basic.measured ? 1 : 0) + (now.measured ? 1 : 0);
    speeds.correction = std::exp(-(basic.error + now.error) / (measured + kDoubtOfOwn));
    speeds_.emplace(job.id, speeds);
  }
  const auto count = static_cast<double>(errors.size());
  const double shared = std::accumulate(errors.begin(), errors.end(), 0.0) / (count + kDoubtOfAll);
  double squares = kUsual * kUsualError * kUsualError;
  for (const double error : errors) squares += (error - shared) * (error - shared);
  error_ = std::sqrt(squares / (count + kUsual));
  const double curse = std::exp(-kCurse * std::max(0.0, error_ - kUsualError));
  for (auto& [id, speeds] : speeds_) speeds.correction *= curse;
}

bool Belief::too_far_off() const noexcept { return error_ > kTooFarOff; }

}  // namespace swell::policy
