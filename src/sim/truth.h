// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/perf/profile.h"
#include "core/plan/layout.h"
#include "sim/judge/hardware.h"
#include "sim/workload.h"

namespace swell::sim {

/// The part of a profile that programs report of themselves.
struct Reporting {
  int steps = 10;  ///< iterations on one plan after which its profile is there
  /// Neither launches nor the head are observed, so that solve() finds the coefficients of A.2.
  bool a2_only = false;
  /// Share of jobs, drawn by the seed, whose profile lies: by the same times of passes, but without
  /// communication and launches, so that any number of GPUs seems to pay.
  double lying_share = 0;
};

/// True speed of one job under each plan: the judge executes it on hardware that is the job's own
/// and hidden from every policy. Equal seeds and ids give equal truths.
class Truth {
 public:
  Truth(const JobType& type, const cluster::Cluster& cluster, std::uint64_t seed,
        std::uint32_t job);

  /// Seconds of one iteration. Caches plans by their shape: which GPUs of a node does not matter,
  /// nor, where nodes are alike, which nodes of a rack.
  double iteration_s(const plan::Layout& layout);

  /// Whether the plan fits the memory of every GPU, as the judge counts it.
  bool fits(const plan::Layout& layout) const;

  /// Returns the profile of `layout`: times have 2 % noise averaged over 5 iterations. The job
  /// reports it as `reporting` says.
  perf::Profile observed(const plan::Layout& layout, const Reporting& reporting = {}) const;

  /// Coefficients solved from observed(). `error`: each plan's predicted time is off by N(0, error)
  /// of its own: an error that all plans of a job share cancels in ratios. Null where the profile
  /// cannot be solved.
  std::shared_ptr<const perf::Coefficients> profile(const plan::Layout& layout, double error,
                                                    const Reporting& reporting = {}) const;

 private:
  std::vector<int> shape_of(const plan::Layout& layout) const;
  const JobType& type_;
  const cluster::Cluster& cluster_;
  std::uint64_t seed_;
  std::uint32_t job_;
  bool alike_;
  judge::Hardware hardware_;
  std::map<std::vector<int>, double> known_;
};

}  // namespace swell::sim
