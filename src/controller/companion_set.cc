// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/companion_set.h"

#include <algorithm>
#include <utility>

namespace swell::controller {

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

int CompanionSet::lent_gpus() const noexcept {
  int sum = 0;
  for (const Companion& companion : companions_) sum += companion.gpus.count;
  return sum;
}

}  // namespace swell::controller
