// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/elastic_spec.h"
#include "control/tag.h"
#include "controller/agent_link.h"
#include "controller/agent_words.h"
#include "controller/companion_identity.h"
#include "controller/companion_set.h"
#include "controller/deadline_watch.h"
#include "controller/gone_companions.h"
#include "controller/job_description.h"
#include "controller/job_limits.h"
#include "controller/job_reports.h"
#include "controller/job_training.h"
#include "controller/last_decision.h"
#include "controller/lending_record.h"
#include "controller/offers.h"
#include "controller/ordered_change.h"
#include "controller/replans.h"
#include "core/policy/trust.h"
#include "core/redeploy/pauses.h"

namespace swell::controller {

/// A running elastic job. Times are seconds on the controller's clock.
struct ElasticJob {
  JobId id = 0;
  uid_t uid = 0;
  std::time_t started = 0;  ///< tells a requeued job from its former run
  double first_seen = 0;
  control::ElasticSpec spec;
  int basic_gpus = 0;
  int wanted_gpus = 0;  ///< what its user asked for, where he consented to fewer; 0: no consent
  CompanionSet companions;
  GoneCompanions gone;
  Offers offers;
  LendingRecord lending;
  AgentLink agent;
  AgentWords agent_words;
  std::optional<double> suspended_since;  ///< since when Slurm has the job suspended

  JobTraining training;
  DeadlineWatch deadline;
  JobDescription description;
  JobReports reports;
  policy::Trust trust;
  redeploy::Pauses pauses;  ///< of its changes of plan, within what the controller saw
  OrderedChange ordered;
  Replans replans;
  LastDecision decision;
  JobLimits limits;

  /// Whether it is lent nothing beyond what its user asked for, under a policy that plans: its
  /// report was refused, and none was ever taken.
  bool is_distrusted() const noexcept { return reports.refused_since() && !training.is_known(); }
  /// A program is planned for by data sheets for so long; then its profile should have come. Its
  /// agent must say within this time that it runs.
  static constexpr double kSheetBelieved_s = 600;
  static constexpr double kSheetWaits_s = 3600;
  /// Whether it is planned for by the model that its user names, under a policy that does so:
  /// until the first profile, and as long as its program follows the plans that it is sent.
  bool goes_by_sheet(double now) const noexcept {
    return description.model() && !training.is_known() && reports.refused().empty() &&
           agent_words.last().plan_refused.empty() &&
           spec.consistency == control::Consistency::relaxed && !is_sheet_too_old(now);
  }
  bool is_sheet_too_old(double now) const noexcept {
    const std::optional<double> trains_since = agent_words.trains_since(),
                                described_since = description.described_since();
    return (trains_since && now >= *trains_since + kSheetBelieved_s) ||
           (described_since && now >= *described_since + kSheetWaits_s);
  }
  /// Lent GPUs go or are gone: it is not grown for the site's `interval_s`, nor for its `stay`.
  /// The former does not hold for a job that is owed GPUs.
  void stay(double now, double interval_s) noexcept {
    offers.give_back(now, interval_s, spec.stay_s, kept_gpus() >= wanted_gpus);
  }
  /// Notes a failed growth, by Offers::fail().
  void growth_failed(double now, double interval_s) noexcept {
    offers.fail(now, interval_s);
    ordered.called_off();
  }
  /// Time for which a reconfiguration that the agent says is under way is believed.
  static constexpr double kReconfigures_s = 600;
  /// Whether a reconfiguration is under way, or was just now. Refusing further growth, since its
  /// owner or its program say so, does not count: it protects nothing from jobs that would gain
  /// more.
  bool is_changing(double now) const noexcept {
    if (!agent.is_connected() || now < offers.times().settles_at) return true;
    return now < offers.times().changed + kReconfigures_s &&
           !(agent_words.is_settled() && agent_words.last().no_growth.empty());
  }
  /// Its GPUs without those of companions that leave.
  int kept_gpus() const noexcept {
    int kept = basic_gpus;
    for (const Companion& companion : companions)
      if (!companion.is_leaving()) kept += companion.gpus.count;
    return kept;
  }
  /// Returns the companions that go back, in this order, where it may keep `max` GPUs: lent ones go
  /// companion by companion. Good until the next change of `companions`.
  std::vector<const Companion*> companions_beyond(int max) const;
  /// How it changes its plan: as the last time, or as its user asked.
  redeploy::Measured way() const noexcept {
    return pauses.last_way().value_or(
        spec.mode == control::Mode::live ? redeploy::Measured::live : redeploy::Measured::restart);
  }
  /// Returns the number of GPUs that its user asked for.
  int asked_gpus() const noexcept { return std::max(basic_gpus, wanted_gpus); }

  CompanionIdentity identity(const Companion& companion) const {
    return {companion.id, id, uid, companion.grant};
  }
  /// Returns the tag: `scontrol show job` prints it between swell[ and ].
  control::Tag tag() const;
};

using JobTable = std::map<JobId, ElasticJob>;

}  // namespace swell::controller
