// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/returns.h"

#include <algorithm>
#include <fmt/format.h>
#include <ranges>
#include <set>
#include <string_view>

#include "controller/companion_time.h"
#include "controller/quotas.h"
#include "core/count_of.h"

namespace swell::controller {

void Returns::take_back(double now) {
  keep_promises(now);
  keep_quotas(now);
  keep_user_limits(now);
  return_what_must(now);
}

/// Takes back what brings less than was promised, or was never shown to bring anything, and what
/// its owner wants no more.
void Returns::keep_promises(double now) {
  for (auto& [id, job] : loop_.jobs) {
    if (const slurm::JobRecord* record =
            job.spec.deadline && !job.suspended_since ? loop_.record_of(id) : nullptr)
      if (const auto why = job.deadline.passes(
              loop_.snapshot.taken, deadline_of(job.spec.deadline, *record), record->start_time))
        loop_.events.event("deadline-missed", {{"job", id}, {"reason", *why}},
                           fmt::format("job {} has missed its deadline: {}", id, *why));
    if (job.trust.is_over(now)) {
      for (Companion& companion : job.companions)
        if (!companion.is_leaving())
          reclaimer_.reclaim(job, companion, now, "shortfall", job.trust.why());
      job.trust.reclaimed(now);
      loop_.decision.ask();
    }
    if (plans_ && job.is_distrusted() &&
        now >= *job.reports.refused_since() + policy::Trust::kTrial_s)
      take_back_from_distrusted(job, now);
    if (job.limits.max_gpus() == 0) continue;
    for (const Companion* beyond : job.companions_beyond(job.limits.max_gpus()))
      reclaimer_.reclaim(
          job, *job.companions.find(beyond->id), now, "owner",
          fmt::format("its owner wants at most {}", count_of(job.limits.max_gpus(), "GPU")));
  }
}

/// Reclaims GPUs lent before a job's profile was refused, the youngest first: with a true profile
/// that shows no gain it would lose them as well. GPUs that its user asked for stay.
void Returns::take_back_from_distrusted(ElasticJob& job, double now) {
  int total = job.kept_gpus();
  for (Companion& companion : std::views::reverse(job.companions)) {
    if (companion.is_leaving() || total - companion.gpus.count < job.asked_gpus()) continue;
    total -= companion.gpus.count;
    reclaimer_.reclaim(job, companion, now, "shortfall",
                       "its profile is not used: " + job.reports.refused());
    loop_.decision.ask();
  }
}

/// Reclaims GPUs lent to an account or a QOS beyond its limit, which may be lower since the
/// last start: from the youngest jobs first.
void Returns::keep_quotas(double now) {
  if (!has_quotas(loop_.config)) return;
  Quotas quotas(loop_.config, loop_.snapshot, loop_.jobs, {});
  for (auto job = loop_.jobs.rbegin(); job != loop_.jobs.rend(); ++job)
    for (Companion& companion : job->second.companions) {
      const int excess = quotas.excess(job->first);
      if (excess == 0) break;
      if (companion.is_leaving()) continue;
      reclaimer_.reclaim(job->second, companion, now, "limit",
                         fmt::format("{} beyond what MaxLentByAccount and MaxLentByQOS allow",
                                     count_of(excess, "GPU")));
      quotas.leaves(job->first, companion.gpus.count);
    }
}

/// Reclaims companions that keep another job of the same user or account pending by Slurm's limits.
void Returns::keep_user_limits(double now) {
  for (const UserLimits::Reclaim& each :
       user_limits_.look(loop_.snapshot, loop_.jobs, loop_.book.outstanding(), now)) {
    ElasticJob& job = loop_.jobs.at(each.job);
    if (Companion* companion = job.companions.find(each.companion))
      reclaimer_.reclaim(job, *companion, now, "limit", each.reason);
  }
}

void Returns::return_what_must(double now) {
  std::set<std::string_view> draining;
  for (const slurm::NodeRecord& node : loop_.snapshot.nodes)
    if (node.draining) draining.insert(node.name);
  const std::time_t time = loop_.snapshot.taken;
  for (const slurm::JobRecord& record : loop_.snapshot.jobs) {
    const auto found = loop_.jobs.find(record.id);
    if (found == loop_.jobs.end()) continue;
    ElasticJob& job = found->second;
    const int grace_s = grace_of(job, loop_.config);
    const bool is_stopped = job.suspended_since && now >= *job.suspended_since + grace_s;
    for (Companion& companion : job.companions) {
      if (companion.is_leaving()) continue;
      if (draining.contains(companion.node)) {
        reclaimer_.reclaim(job, companion, now, "drain", "its node is drained");
      } else if (const slurm::ReservationRecord* held =
                     current_reservation(loop_.snapshot, companion.node)) {
        // Made with flags=ignore_jobs: companions end before any other.
        reclaimer_.reclaim(job, companion, now, "limit",
                           fmt::format("reservation {} has begun on its node", held->name));
      } else if (is_stopped || (companion.suspended && !job.suspended_since)) {
        // Its processes are stopped: nobody there could act within a grace, and others wait for
        // workers of a companion that is suspended alone.
        reclaimer_.reclaim_at_once(
            job, companion, now, "agent",
            is_stopped ? "Slurm has suspended its job" : "Slurm has suspended it");
      } else if (const auto [at, why] = end_of(companion, record, loop_.snapshot);
                 at != 0 && at - time <= grace_s + kEndSlack_s) {
        reclaimer_.reclaim(job, companion, now, "limit",
                           fmt::format("it must end before its job: {}", why));
      } else continue;
      loop_.decision.ask();
    }
  }
}

}  // namespace swell::controller
