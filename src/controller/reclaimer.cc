// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/reclaimer.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "controller/companion_time.h"
#include "core/count_of.h"

namespace swell::controller {

namespace {

/// A preempted or reclaimed companion that outlives its deadline is cancelled this much later, so
/// that an agent that acts at the last moment is not overtaken.
constexpr double kDeadlineSlack_s = 1;

/// A cancellation is asked for again after it, where Slurm did not hear it.
constexpr double kCancelAgain_s = 10;

/// An agent that released a companion has cancelled it already; where it did not, this happens so
/// much later.
constexpr double kReleasedKept_s = 5;

}  // namespace

Json companion_json(const Companion& companion) {
  return Json::object({{"id", companion.id},
                       {"node", companion.node},
                       {"gpus", companion.gpus.count},
                       {"gpu_indices", companion.gpus.indices}});
}

std::string subject_of(JobId companion) { return fmt::format("companion {}", companion); }

void Reclaimer::leave(ElasticJob& job, Companion& companion, double now, const char* cause,
                      const std::string& reason, std::optional<double> by) {
  companion.departure_.begin(by.value_or(now + grace_of(job, loop_.config)), reason);
  job.lending.take_back(reason);
  job.stay(now, loop_.config.growth_interval_s);
  loop_.events.event(
      "reclaim",
      {{"job", job.id},
       {"companion", companion_json(companion)},
       {"cause", cause},
       {"reason", reason}},
      fmt::format("reclaiming {} on {} from job {}: {}", count_of(companion.gpus.count, "GPU"),
                  companion.node, job.id, reason));
}

void Reclaimer::reclaim(ElasticJob& job, Companion& companion, double now, const char* cause,
                        const std::string& reason) {
  leave(job, companion, now, cause, reason);
  tell(job, companion, now);
  if (job.agent.is_connected()) job.ordered.ordered(now);
}

void Reclaimer::reclaim_at_once(ElasticJob& job, Companion& companion, double now,
                                const char* cause, const std::string& reason) {
  leave(job, companion, now, cause, reason, now);
  tell(job, companion, now);
}

void Reclaimer::given_back(Companion& companion, double now, const std::string& reason) {
  companion.departure_.begin(now + kReleasedKept_s, reason);
}

void Reclaimer::explain_end(Companion& companion, std::string reason) {
  companion.departure_.explain(std::move(reason));
}

void Reclaimer::end_all(ElasticJob& job, double now, const std::string& reason) {
  // No agent is left that needs a grace period.
  for (Companion& companion : job.companions)
    if (!companion.is_leaving()) companion.departure_.begin(now - kDeadlineSlack_s, reason);
}

void Reclaimer::tell(ElasticJob& job, const Companion& companion, double now) {
  if (!job.agent.is_connected()) return;
  control::Shrink shrink;
  shrink.companions = {companion.id};
  shrink.deadline_s =
      static_cast<int>(std::ceil(std::max(companion.departure().deadline() - now, 0.0)));
  shrink.reason = companion.departure().reason();
  loop_.sessions.send(job.agent.connection(), std::move(shrink));
}

void Reclaimer::tell_ended(ElasticJob& job, JobId companion) {
  if (!job.agent.is_connected()) return;
  control::Shrink shrink;
  shrink.companions = {companion};
  shrink.deadline_s = 0;
  shrink.reason = kHasEnded;
  loop_.sessions.send(job.agent.connection(), std::move(shrink));
}

void Reclaimer::keep_deadlines(ElasticJob& job, double now) {
  if (!job.agent.is_connected() && !job.companions.empty() &&
      now - job.agent.seen() >= loop_.config.agent_timeout_s)
    for (Companion& companion : job.companions)
      if (!companion.is_leaving())
        leave(job, companion, now, "agent", fmt::format("job {} has no agent any more", job.id),
              now - kDeadlineSlack_s);
  for (Companion& companion : job.companions) {
    if (!companion.is_leaving() || companion.departure().is_lost() ||
        now < companion.departure().deadline() + kDeadlineSlack_s)
      continue;
    cancel(job.identity(companion), companion.departure().reason().empty()
                                        ? "its time is over"
                                        : companion.departure().reason());
    companion.departure_.set_deadline(now + kCancelAgain_s);
  }
}

void Reclaimer::cancel(const CompanionIdentity& companion, const std::string& reason) {
  loop_.slurm.forget();
  const Result<std::optional<slurm::JobRecord>> record = loop_.slurm.load_job(companion.id);
  const std::string subject = subject_of(companion.id);
  if (!record) return loop_.events.say_once(subject, record.error().message());
  using slurm::JobPhase;
  if (!*record || (*record)->phase == JobPhase::ended || (*record)->phase == JobPhase::completing)
    return loop_.events.fixed(subject);
  if (const Result<void> same = check_identity(**record, companion); !same) {
    loop_.events.event(
        "cancel-refused",
        {{"job", companion.parent},
         {"companion", Json::object({{"id", companion.id}})},
         {"reason", same.error().message()}},
        fmt::format("companion {} is not cancelled: {}", companion.id, same.error().message()));
    return;
  }
  loop_.events.event("cancel",
                     {{"job", companion.parent},
                      {"companion", Json::object({{"id", companion.id}})},
                      {"reason", reason}},
                     fmt::format("cancelling companion {}: {}", companion.id, reason));
  if (Result<void> done = loop_.slurm.cancel(companion.id); !done)
    loop_.events.say_once(subject, done.error().message());
  else loop_.events.fixed(subject);
}

}  // namespace swell::controller
