// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/predict/fit.h"

#include <algorithm>
#include <cmath>

namespace swell::predict {

namespace {

constexpr double kScaleSigma = 0.05;  // spread of models on one machine (sigma of the logarithm)
constexpr double kRowSigma = 0.06;    // error of a fitted model at one row (likewise)
// Maximum number of rows whose variance choose_rows() considers.
constexpr std::size_t kMaxScored = 1000;
constexpr int kSteps = 30;

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

/// Returns the number of each run's model, in order of appearance.
std::vector<std::size_t> number_models(const std::vector<TrainingRun>& runs) {
  std::vector<std::size_t> number, first;
  for (const TrainingRun& run : runs) {
    std::size_t m = 0;
    while (m < first.size() && !runs[first[m]].same_model(run)) ++m;
    if (m == first.size()) first.push_back(number.size());
    number.push_back(m);
  }
  return number;
}

/// Unknowns of the fit: logarithms relative to the expected values, first of the machine's
/// constants, then of the scales.
class Unknowns {
 public:
  Unknowns(const std::vector<TrainingRun>& runs, const MachineModel& model)
      : runs_(runs),
        model_(model),
        models_(number_models(runs)),
        count_(Machine::kCount +
               (models_.empty() ? 0 : *std::max_element(models_.begin(), models_.end()) + 1)) {}

  std::size_t count() const { return count_; }
  std::size_t model_count() const { return count_ - Machine::kCount; }
  std::size_t model_of(std::size_t run) const { return models_[run]; }
  double sigma(std::size_t i) const {
    return i < Machine::kCount ? Machine::expected()[i].log_sigma : kScaleSigma;
  }

  Machine machine(const Vector& x) const {
    Machine machine = Machine::expected_values();
    for (std::size_t i = 0; i < Machine::kCount; ++i) machine.value[i] *= std::exp(x[i]);
    return machine;
  }
  double scale(const Vector& x, std::size_t run) const {
    return std::exp(x[Machine::kCount + models_[run]]);
  }
  double log_prediction(const Vector& x, std::size_t run) const {
    return std::log(model_.iteration_s(runs_[run], machine(x), scale(x, run)));
  }
  Vector gradient(Vector x, std::size_t run) const {
    constexpr double step = 1e-3;
    Vector slope(count_, 0.0);
    for (std::size_t i = 0; i < count_; ++i) {
      if (i >= Machine::kCount && i != Machine::kCount + models_[run]) continue;
      const double kept = x[i];
      x[i] = kept + step;
      const double above = log_prediction(x, run);
      x[i] = kept - step;
      slope[i] = (above - log_prediction(x, run)) / (2 * step);
      x[i] = kept;
    }
    return slope;
  }

 private:
  const std::vector<TrainingRun>& runs_;
  const MachineModel& model_;
  std::vector<std::size_t> models_;
  std::size_t count_;
};

Vector product(const Matrix& a, const Vector& x) {
  Vector y(a.size(), 0.0);
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += a[i][j] * x[j];
  return y;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Solves a x = b for a symmetric positive definite matrix a.
Vector solve(Matrix a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

}  // namespace

std::vector<std::size_t> choose_rows(const std::vector<TrainingRun>& runs,
                                     const MachineModel& model) {
  const Unknowns unknowns(runs, model);
  const Vector expected(unknowns.count(), 0.0);
  Matrix gradients;
  for (std::size_t run = 0; run < runs.size(); ++run)
    gradients.push_back(unknowns.gradient(expected, run));
  Matrix covariance(unknowns.count(), Vector(unknowns.count(), 0.0));
  for (std::size_t i = 0; i < unknowns.count(); ++i)
    covariance[i][i] = unknowns.sigma(i) * unknowns.sigma(i);

  const std::size_t stride = runs.size() / kMaxScored + 1;
  std::vector<bool> done(unknowns.model_count(), false);
  std::vector<std::size_t> chosen;
  while (chosen.size() < unknowns.model_count()) {
    double max_gained = -1;
    std::size_t best = 0;
    Vector best_spread;
    for (std::size_t run = 0; run < runs.size(); ++run) {
      if (done[unknowns.model_of(run)]) continue;
      const Vector spread = product(covariance, gradients[run]);
      const double variance = dot(gradients[run], spread) + kRowSigma * kRowSigma;
      double gained = 0;
      for (std::size_t other = 0; other < runs.size(); other += stride) {
        const double shared = dot(gradients[other], spread);
        gained += shared * shared / variance;
      }
      if (gained > max_gained * (1 + 1e-12)) {
        max_gained = gained;
        best = run;
        best_spread = spread;
      }
    }
    const double variance = dot(gradients[best], best_spread) + kRowSigma * kRowSigma;
    for (std::size_t i = 0; i < covariance.size(); ++i)
      for (std::size_t j = 0; j < covariance.size(); ++j)
        covariance[i][j] -= best_spread[i] * best_spread[j] / variance;
    done[unknowns.model_of(best)] = true;
    chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<std::size_t> first_rows(const std::vector<TrainingRun>& runs) {
  std::vector<std::size_t> rows;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const auto alike = [&](std::size_t row) { return runs[row].same_model(runs[run]); };
    if (std::none_of(rows.begin(), rows.end(), alike)) rows.push_back(run);
  }
  return rows;
}

Fit fit(const std::vector<TrainingRun>& runs, const std::vector<std::size_t>& fitted,
        const MachineModel& model) {
  const Unknowns unknowns(runs, model);
  const std::size_t n = unknowns.count();
  auto cost = [&](const Vector& x) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      sum += x[i] * x[i] / (unknowns.sigma(i) * unknowns.sigma(i));
    for (std::size_t run : fitted) {
      const double off =
          (unknowns.log_prediction(x, run) - std::log(runs[run].iteration_s)) / kRowSigma;
      sum += off * off;
    }
    return sum;
  };
  // Gauss-Newton with halved steps: there are few unknowns, the problem is smooth, and the priors
  // keep it well conditioned.
  Vector x(n, 0.0);
  double now = cost(x);
  for (int step = 0; step < kSteps; ++step) {
    Matrix normal(n, Vector(n, 0.0));
    Vector right(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = 1 / (unknowns.sigma(i) * unknowns.sigma(i));
      normal[i][i] = weight;
      right[i] = -weight * x[i];
    }
    for (std::size_t run : fitted) {
      const Vector slope = unknowns.gradient(x, run);
      const double off = std::log(runs[run].iteration_s) - unknowns.log_prediction(x, run);
      for (std::size_t i = 0; i < n; ++i) {
        right[i] += slope[i] * off / (kRowSigma * kRowSigma);
        for (std::size_t j = 0; j < n; ++j)
          normal[i][j] += slope[i] * slope[j] / (kRowSigma * kRowSigma);
      }
    }
    Vector move = solve(normal, right);
    double next = now;
    Vector trial;
    for (int halving = 0; halving < 20; ++halving) {
      trial = x;
      for (std::size_t i = 0; i < n; ++i) trial[i] += move[i];
      next = cost(trial);
      if (next < now) break;
      for (double& m : move) m /= 2;
    }
    if (!(next < now)) break;
    const bool settled = now - next < 1e-10 * (1 + now);
    x = trial;
    now = next;
    if (settled) break;
  }
  Fit found{unknowns.machine(x), {}};
  for (std::size_t run = 0; run < runs.size(); ++run) found.scale.push_back(unknowns.scale(x, run));
  return found;
}

}  // namespace swell::predict
