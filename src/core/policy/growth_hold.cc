// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/growth_hold.h"

#include <algorithm>

namespace swell::policy {

double profile_wait_left(double age_s, std::int64_t steps, double profile_wait_s) noexcept {
  const double waits = steps == 0 ? kFirstStepWaits : steps < kProfileSteps ? kProfileWaits : 1;
  return std::max(0.0, waits * profile_wait_s - age_s);
}

double whole_profile_wait(double step_s, double profile_wait_s) noexcept {
  if (step_s > kFirstStepWaits * profile_wait_s) return kFirstStepWaits * profile_wait_s;
  return std::clamp(kProfileSteps * step_s, profile_wait_s, kProfileWaits * profile_wait_s);
}

GrowthHold profile_hold(const GrowthFacts& facts) noexcept {
  if (facts.can_be_planned) return GrowthHold::none;
  if (facts.is_profile_refused) return GrowthHold::profile_refused;
  if (!facts.lends_without_profile) return GrowthHold::profile_needed;
  return facts.awaits_profile ? GrowthHold::profile_awaited : GrowthHold::none;
}

GrowthHold growth_hold(const GrowthFacts& facts) noexcept {
  if (facts.is_paused) return GrowthHold::paused;
  if (!facts.has_agent) return GrowthHold::no_agent;
  if (facts.refuses) return GrowthHold::refuses;
  if (!facts.is_running) return GrowthHold::not_running;
  if (facts.is_preempted) return GrowthHold::preempted;
  if (facts.left_s < facts.least_left_s) return GrowthHold::ends_soon;
  if (facts.falls_short) return GrowthHold::falls_short;
  if (facts.is_at_its_limit) return GrowthHold::at_its_limit;
  if (!facts.is_owed_some)
    if (const GrowthHold hold = profile_hold(facts); hold != GrowthHold::none) return hold;
  if (facts.now_s < facts.stays_until_s && facts.stays_until_s >= facts.grows_after_s)
    return GrowthHold::stays;
  if (facts.now_s < facts.grows_after_s) return GrowthHold::backs_off;
  return facts.is_settled ? GrowthHold::none : GrowthHold::changing;
}

}  // namespace swell::policy
