// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "controller/loop_state.h"
#include "controller/reclaimer.h"
#include "controller/user_limits.h"

namespace swell::controller {

/// Takes lent GPUs back for reasons that no policy weighs: broken promises, limits, and the state
/// of nodes and jobs.
class Returns {
 public:
  /// `plans`: the policy makes plans, and so depends on true profiles.
  Returns(LoopState& loop, Reclaimer& reclaimer, bool plans)
      : loop_(loop), reclaimer_(reclaimer), plans_(plans) {}

  /// Reclaims all that must go back now.
  void take_back(double now);

 private:
  void keep_promises(double now);
  void take_back_from_distrusted(ElasticJob& job, double now);
  void keep_quotas(double now);
  void keep_user_limits(double now);
  void return_what_must(double now);

  LoopState& loop_;
  Reclaimer& reclaimer_;
  UserLimits user_limits_;
  const bool plans_;
};

}  // namespace swell::controller
