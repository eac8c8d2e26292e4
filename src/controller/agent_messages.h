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

  /// Handles what has come since the last call, but for hellos and what came behind them.
  void take(double now);
  /// Handles hellos, and what came behind them. REQUIRES: the job table shows what Slurm's records
  /// show now.
  void answer_hellos(double now);
  /// Gives up grants whose companions began and ended between two looks at Slurm's records, as
  /// where their steps cannot be launched. Otherwise their GPUs would count as taken until the
  /// grants expire. Where Slurm does not answer, it is asked again in the next round.
  void settle_unseen(double now);
  /// Refuses what the connection said, and ends it; a job that it spoke for has no agent any more.
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
