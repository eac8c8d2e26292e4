// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

#include "controller/companion_identity.h"
#include "controller/loop_state.h"

namespace swell::controller {

/// Returns how events show a companion.
Json companion_json(const Companion& companion);
/// Names what EventLog::say_once() says of the companion's cancellation.
std::string subject_of(JobId companion);

/// Takes lent GPUs back: marks companions as leaving, tells their agents, and cancels those that
/// are still there after their deadline. No other part of the loop cancels a job.
class Reclaimer {
 public:
  explicit Reclaimer(LoopState& loop) : loop_(loop) {}

  /// Marks the companion as leaving until `by`, or within the job's grace; its agent is not told
  /// yet. `cause`: a label of swell_reclaims (meters.h). REQUIRES: it does not leave yet.
  void leave(ElasticJob& job, Companion& companion, double now, const char* cause,
             const std::string& reason, std::optional<double> by = std::nullopt);
  /// Marks the companion as leaving within the job's grace, and orders its agent to give it back.
  /// REQUIRES: it does not leave yet.
  void reclaim(ElasticJob& job, Companion& companion, double now, const char* cause,
               const std::string& reason);
  /// Marks the companion as leaving now, and tells its agent: nobody there can act within a grace.
  /// REQUIRES: it does not leave yet.
  void reclaim_at_once(ElasticJob& job, Companion& companion, double now, const char* cause,
                       const std::string& reason);
  /// Marks a companion as leaving that its agent gave back, and has cancelled itself.
  void given_back(Companion& companion, double now, const std::string& reason);
  /// Marks all companions of a job as leaving at once: its program has ended.
  void end_all(ElasticJob& job, double now, const std::string& reason);
  /// Says why a companion ended that nobody took back. REQUIRES: Slurm shows that it ends.
  void explain_end(Companion& companion, std::string reason);
  /// Tells the job's agent that Slurm shows the companion as ended.
  void tell_ended(ElasticJob& job, JobId companion);
  /// Tells the job's agent that the companion leaves, by when, and why.
  void tell(ElasticJob& job, const Companion& companion, double now);
  /// Ends the companions of a job that has no agent any more, and cancels those whose deadline is
  /// over.
  void keep_deadlines(ElasticJob& job, double now);
  /// Cancels a companion, if slurmctld's record of this moment says that it is this one. The one
  /// way in which Swell ends a job.
  void cancel(const CompanionIdentity& companion, const std::string& reason);

 private:
  LoopState& loop_;
};

}  // namespace swell::controller
