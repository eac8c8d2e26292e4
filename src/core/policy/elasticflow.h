// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/policy.h"
#include "core/policy/scaling_curve.h"

namespace swell::policy {

/// ElasticFlow (Gu et al., ASPLOS 2023) for jobs without deadlines, its best-effort jobs: every job is admitted
/// with its smallest share as long as there is one, in the queue's order; what is left goes, share
/// by share, to the job with the largest marginal return. Shares are powers of
/// two in a node or whole nodes, placed like a buddy allocator's blocks; DP alone scales. Moves
/// by checkpoint. Needs ClusterView::machines; decides nothing without. Thread-safe: only pure results
/// are kept.
class ElasticFlow final : public Policy {
 public:
  struct Options {
    double round_s = 60;
  };
  ElasticFlow() : ElasticFlow(Options{}) {}
  explicit ElasticFlow(Options options) noexcept : options_(options) {}
  Decisions decide(const ClusterView& view) const override;
  Role role() const noexcept override { return Role::replaces; }
  double round_s() const noexcept override { return options_.round_s; }
  perf::Sends sends() const noexcept override { return perf::Sends::counted; }
  Redeployment redeployment() const noexcept override { return Redeployment::checkpoint; }

 private:
  Options options_;
  mutable CurveCache curves_;
};

}  // namespace swell::policy
