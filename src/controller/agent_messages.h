// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "controller/loop_state.h"
#include "controller/owner_requests.h"
#include "controller/reclaimer.h"
#include "controller/report_reader.h"

namespace swell::controller {

/// Reads the messages of agents into the job table, and answers them.
class AgentMessages {
 public:
  AgentMessages(LoopState& loop, Reclaimer& reclaimer, ReportReader& reports,
                OwnerRequests& requests)
      : loop_(loop), reclaimer_(reclaimer), reports_(reports), requests_(requests) {}

  /// Handles the messages that have arrived since the last call. Leaves hellos, and later messages
  /// of the same connections, to answer_hellos().
  void take(double now);
  /// Handles hellos, and later messages of the same connections. REQUIRES: the job table was
  /// brought in line with Slurm's records in this round.
  void answer_hellos(double now);
  /// Withdraws grants whose companions began and ended between two reads of Slurm's records, for
  /// example because their steps could not be launched. Otherwise their GPUs would count as taken
  /// until the grants expire. If Slurm does not answer, the next round asks again.
  void settle_unseen(double now);
  /// Refuses a message of the connection, and closes the connection. A job whose agent used it has
  /// no agent any more.
  void refuse(control::ConnectionId connection, const std::string& reason, double now);

 private:
  void handle(const control::Server::Event& event, double now);
  void handle(const control::Server::Event& event, const control::Hello& hello, double now);
  void handle(ElasticJob& job, const control::GrowDone& done, double now);
  void handle(ElasticJob& job, const control::Released& released, double now);
  void handle(ElasticJob& job, const control::Status& status, double now);
  void handle(ElasticJob& job, const control::Profile& profile, double now);
  void handle(ElasticJob& job, const control::Switched& switched, double now);
  void handle(ElasticJob& job, const control::Bye& bye, double now);
  void companion_unseen(ElasticJob& job, const slurm::JobRecord& record, const std::string& nonce,
                        const control::Released& released, double now);
  void companion_failed(ElasticJob& job, const control::Released& released);
  void failed_on(const std::string& node, const ElasticJob& job, const control::Released& released);
  void take_start(ElasticJob& job, double start_s, double now);
  void welcome(const control::Server::Event& event, const control::Hello& hello, ElasticJob& job,
               double now);
  void agent_gone(ElasticJob& job, double now);
  ElasticJob* job_of(control::ConnectionId connection);

  LoopState& loop_;
  Reclaimer& reclaimer_;
  ReportReader& reports_;
  OwnerRequests& requests_;
};

}  // namespace swell::controller
