// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/reservations.h"

#include <algorithm>
#include <limits>

namespace swell::policy {

std::optional<int> Reservations::promise(const std::vector<Configuration>& ladder, double samples,
                                         double deadline_s) {
  if (ladder.empty()) return std::nullopt;
  const auto type = static_cast<std::size_t>(ladder.front().type);
  for (int limit = 0; limit < static_cast<int>(ladder.size()); ++limit) {
    std::vector<int> steps;
    double left = samples, ends_s = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < segments_.size() && segments_[i].from_s < deadline_s; ++i) {
      const Segment& segment = segments_[i];
      const double to_s =
          i + 1 < segments_.size() ? std::min(segments_[i + 1].from_s, deadline_s) : deadline_s;
      int step = limit;
      while (step >= 0 && ladder[static_cast<std::size_t>(step)].gpus > segment.free[type]) --step;
      steps.push_back(step);
      if (step < 0) continue;
      const double rate = ladder[static_cast<std::size_t>(step)].throughput, needs_s = left / rate;
      if (segment.from_s + needs_s <= to_s) {
        ends_s = segment.from_s + needs_s;
        break;
      }
      left -= rate * (to_s - segment.from_s);
    }
    if (ends_s > deadline_s) continue;
    split(ends_s);
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i] >= 0) segments_[i].free[type] -= ladder[static_cast<std::size_t>(steps[i])].gpus;
    return steps.empty() ? -1 : steps.front();
  }
  return std::nullopt;
}

void Reservations::split(double at_s) {
  const auto after = std::find_if(segments_.begin(), segments_.end(),
                                  [&](const Segment& one) { return one.from_s >= at_s; });
  if (after == segments_.begin() || (after != segments_.end() && after->from_s == at_s)) return;
  Segment added = *(after - 1);
  added.from_s = at_s;
  segments_.insert(after, std::move(added));
}

}  // namespace swell::policy
