// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace swell::sim {

/// Random numbers that are the same with every compiler and library: SplitMix64. Their purpose is
/// part of the key, so that drawing more for one purpose changes nothing for another.
class Random {
 public:
  /// Equal keys give equal streams: (seed, purpose, job), for example.
  explicit Random(std::initializer_list<std::uint64_t> key) {
    for (std::uint64_t part : key) {
      state_ ^= part + 0x9e3779b97f4a7c15u;
      state_ = next();
    }
  }

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// A uniform number in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double between(double min, double max) { return min + (max - min) * uniform(); }
  /// A uniform index in [0, count).
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(count));
  }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log1p(-uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  /// A factor between exp(-spread) and exp(spread), uniform in its logarithm.
  double factor(double spread) { return std::exp(between(-spread, spread)); }

 private:
  std::uint64_t state_ = 0;
};

/// Purpose of a stream: the second part of its key.
enum Purpose : std::uint64_t {
  kSampling = 1,
  kModels,
  kHardware,
  kNoise,
  kPredictionError,
  kLimits,
  kArrivals,
  kFailures,
  kTests,
  kStragglers,
  kConsent,
  kLies,
  kDeadlines
};

}  // namespace swell::sim
