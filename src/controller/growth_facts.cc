// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/growth_facts.h"

#include "core/policy/registry.h"

namespace swell::controller {

policy::GrowthFacts growth_facts(const ElasticJob& job, const slurm::JobRecord& record,
                                 const policy::ElasticJobView& seen,
                                 const policy::ClusterView& view, const Config& config,
                                 std::time_t taken) {
  policy::GrowthFacts facts;
  facts.is_paused = job.limits.is_paused();
  facts.has_agent = job.agent.is_connected();
  facts.refuses = !job.agent_words.last().no_growth.empty();
  facts.is_running = record.phase == slurm::JobPhase::running;
  facts.is_preempted = record.is_preempted();
  if (record.end_time != 0 && record.time_limit_min != 0)
    facts.left_s = static_cast<double>(record.end_time - taken);
  facts.least_left_s = config.min_remaining_s;
  facts.falls_short = !job.trust.may_grow(view.now_s);
  facts.is_at_its_limit = !job.limits.held_back().empty();
  facts.can_be_planned =
      job.training.is_known() || seen.training != nullptr || !policy::policy_plans(config.policy);
  facts.is_profile_refused = job.is_distrusted();
  facts.lends_without_profile = config.lends_without_profile;
  facts.awaits_profile =
      view.machines != nullptr && job.spec.mode == control::Mode::live &&
      job.reports.refused().empty() &&
      policy::profile_wait_left(view.now_s - job.agent.since(), job.agent_words.steps_here(),
                                config.profile_wait_s) > 0;
  facts.is_owed_some = job.basic_gpus + job.companions.lent_gpus() < job.wanted_gpus;
  facts.now_s = view.now_s;
  facts.stays_until_s = job.offers.times().stays_until;
  facts.grows_after_s = job.offers.times().grows_after;
  facts.is_settled = job.agent_words.is_settled();
  return facts;
}

}  // namespace swell::controller
