// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/companion_set.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace swell::controller {

void Companion::leave(double by, const std::string& why) {
  deadline = leaving ? std::min(deadline, by) : by;
  if (!leaving) reason = why;
  leaving = true;
}

void Companion::preempted(double at, JobId needed_by) {
  if (!leaving || reason.empty())
    reason = needed_by != 0 ? fmt::format("needed by job {}", needed_by) : "preempted by Slurm";
  was_leaving = leaving;
  leaving = by_slurm = true;
  deadline = at;
}

Companion* CompanionSet::find(JobId companion) noexcept {
  for (Companion& each : companions_)
    if (each.id == companion) return &each;
  return nullptr;
}

bool CompanionSet::has_grant(const std::string& grant) const noexcept {
  return std::any_of(companions_.begin(), companions_.end(),
                     [&](const Companion& each) { return each.grant == grant; });
}

Companion& CompanionSet::add(Companion companion) {
  return companions_.emplace_back(std::move(companion));
}

void CompanionSet::remove(JobId companion) {
  std::erase_if(companions_, [&](const Companion& each) { return each.id == companion; });
}

void CompanionSet::leave(double by, const std::string& why) {
  for (Companion& each : companions_)
    if (!each.leaving) each.leave(by, why);
}

int CompanionSet::lent_gpus() const noexcept {
  int sum = 0;
  for (const Companion& companion : companions_) sum += companion.gpus.count;
  return sum;
}

}  // namespace swell::controller
