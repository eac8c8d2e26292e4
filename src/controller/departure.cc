// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/departure.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::controller {

void Departure::begin(double by, const std::string& why) {
  deadline_ = has_begun_ ? std::min(deadline_, by) : by;
  if (!has_begun_) reason_ = why;
  has_begun_ = true;
}

void Departure::preempt(double at, control::JobId needed_by) {
  if (!has_begun_ || reason_.empty())
    reason_ = needed_by != 0 ? fmt::format("needed by job {}", needed_by) : "preempted by Slurm";
  was_under_way_ = has_begun_;
  has_begun_ = is_by_slurm_ = true;
  deadline_ = at;
}

}  // namespace swell::controller
