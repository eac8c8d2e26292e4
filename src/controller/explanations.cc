// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/explanations.h"

#include <fmt/format.h>
#include <string>
#include <utility>

#include "controller/growth_facts.h"
#include "core/count_of.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/registry.h"

namespace swell::controller {

namespace {

/// Tells the owner of a job that is_distrusted() what it is lent and how to change that.
std::string distrust(const ElasticJob& job) {
  const std::string most =
      job.wanted_gpus > job.basic_gpus
          ? fmt::format("no more than the {} that it asked for", count_of(job.wanted_gpus, "GPU"))
          : "nothing";
  return fmt::format("lent {} until it reports a usable profile: {}", most, job.reports.refused());
}

/// Why a job has no profile, and is not planned for by data sheets either.
std::string why_no_profile(const ElasticJob& job, const Config& config, double now) {
  const std::string none = "its program has reported no profile";
  if (!job.description.refused_model().empty())
    return none + ", and its model is not used: " + job.description.refused_model();
  if (!job.description.model()) return none;
  if (!policy::policy_reads_data_sheets(config.policy))
    return fmt::format("{}, and policy {} reads no data sheets", none, config.policy);
  if (job.spec.consistency != control::Consistency::relaxed)
    return none + ", and with consistency=exact data sheets alone make no plan";
  if (const std::string& refused = job.agent_words.last().plan_refused; !refused.empty())
    return none + ", and refused the plan by data sheets: " + refused;
  if (job.is_sheet_too_old(now))
    return fmt::format(
        "{} within {:.0f} s of training, or {:.0f} s of its agent's first word: "
        "data sheets are believed no longer",
        none, ElasticJob::kSheetBelieved_s, ElasticJob::kSheetWaits_s);
  return none + ", and by data sheets no plan over its own GPUs fits";
}

}  // namespace

void explain(LoopState& loop, ClusterViews& views, const policy::ClusterView& view) {
  const bool plans = policy::policy_plans(loop.config.policy);
  for (const policy::ElasticJobView& seen : view.jobs) {
    ElasticJob& job = loop.jobs.at(seen.id);
    std::string by = "worker by worker", why;
    const bool can_plan = policy::Expansions::can_plan(seen, view);
    const policy::GrowthHold by_profile =
        policy::profile_hold(growth_facts(job, {}, seen, view, loop.config, 0));
    if (can_plan && !seen.training->is_measured()) {
      by = "by data sheet";
      why = fmt::format("until it reports a profile, by the model that it was said to train: {}",
                        job.description.model()->summary());
    } else if (can_plan) {
      by = "planned";
      const auto& speedup = job.training.speedup();
      why = fmt::format("it does {:.4g} samples a second", job.training.rate());
      if (speedup)
        why += fmt::format(", {:.2f} times as many as alone, {:.2f} predicted", speedup->measured,
                           speedup->predicted);
      if (job.training.told().makes_own_plans()) why += "; the program makes its own plans";
    } else if (!plans) {
      why = fmt::format("policy {} makes no plans", loop.config.policy);
    } else if (by_profile == policy::GrowthHold::profile_refused) {
      if (job.wanted_gpus <= job.basic_gpus) by = "not at all";
      why = distrust(job);
    } else if (by_profile == policy::GrowthHold::profile_needed) {
      by = "not at all";
      why = "LendWithoutProfile=no in swell.conf, and " +
            why_no_profile(job, loop.config, view.now_s);
    } else if (!job.reports.refused().empty()) {
      why = "its profile is not used: " + job.reports.refused();
    } else if (job.spec.mode != control::Mode::live) {
      why = "only programs of live mode report a profile";
    } else if (!job.training.is_known()) {
      why = why_no_profile(job, loop.config, view.now_s);
    } else {
      const Result<JobGpus> gpus = views.gpus_of(job);
      why = gpus ? "no plan over its GPUs was found" : gpus.error().message();
    }
    if (!job.trust.may_grow(view.now_s)) why = job.trust.why();
    if (job.decision.by() != by)
      loop.events.event("decided-by", {{"job", job.id}, {"by", by}, {"reason", why}},
                        fmt::format("job {} (decision: {}): {}", job.id, by, why));
    job.decision.explain(std::move(by), std::move(why));
  }
}

}  // namespace swell::controller
