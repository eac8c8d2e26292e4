// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "controller/job_scale.h"
#include "core/policy/policy.h"

namespace swell::controller {

/// The last decision about a job, for its owner. Only Decider, explain() and ScaleKeeper write it.
class LastDecision {
 public:
  /// Sets how its expansions are decided ("planned", ...), and why so.
  void explain(std::string by, std::string why) {
    by_ = std::move(by);
    why_ = std::move(why);
  }
  /// Begins with a new decision, in which nothing is doubted yet.
  void begin() noexcept { unlikely_.reset(); }
  void doubt(const policy::Unlikely& unlikely) { unlikely_ = unlikely; }
  void set_scale(planner::NamedTable scale) { scale_ = std::move(scale); }

  /// Empty: nothing was decided yet.
  const std::string& by() const noexcept { return by_; }
  const std::string& why() const noexcept { return why_; }
  /// Set where a growth would not pay.
  const std::optional<policy::Unlikely>& unlikely() const noexcept { return unlikely_; }
  /// The table of the last decision that planned for it.
  const planner::NamedTable& scale() const noexcept { return scale_; }

 private:
  std::string by_, why_;
  std::optional<policy::Unlikely> unlikely_;
  planner::NamedTable scale_;
};

}  // namespace swell::controller
