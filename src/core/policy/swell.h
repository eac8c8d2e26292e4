// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/policy.h"
#include "core/policy/scale_tables.h"

namespace swell::policy {

/// Swell's own: joint lending for the least mean completion time.
class Swell final : public Policy {
 public:
  struct Options {
    double aggressiveness = 1.0;
    double power = 1, size = 0, age = 0, horizon = 1, margin = 2, probability = 0.6;
    int queue_depth = 1000;
    double least_growth = 0.1;
    int most = 1;  ///< most free: times the job
  };
  Swell();
  explicit Swell(Options options);
  Decisions decide(const ClusterView& view) const override;

 private:
  Options options_;
  ScaleTables growing_, grown_;
};

}  // namespace swell::policy
