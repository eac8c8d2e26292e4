// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/variants.h"

#include "core/planner/incremental.h"
#include "core/planner/symmetric.h"
#include "core/policy/marginal_benefit.h"
#include "core/policy/timed_metis.h"

namespace swell::policy {

std::unique_ptr<Policy> make_suika_dp(double aggressiveness) {
  MarginalBenefit::Options options;
  options.aggressiveness = aggressiveness;
  return std::make_unique<MarginalBenefit>(options, std::make_unique<planner::DpOnly>(), std::make_unique<planner::DpOnly>());
}

std::unique_ptr<Policy> make_metis(double aggressiveness) {
  // What is to be given back and the plan without it is not worth 60 s of search.
  planner::Incremental::Options grown;
  grown.most_free = 1 << 20;
  MarginalBenefit::Options options;
  options.aggressiveness = aggressiveness;
  options.search_s = TimedMetis::kBudget_s;
  options.evaluations_per_s = TimedMetis::kPlans_per_s;
  return std::make_unique<MarginalBenefit>(options, std::make_unique<TimedMetis>(0), std::make_unique<planner::Incremental>(grown));
}

}  // namespace swell::policy
