// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <string>

#include "control/speed_table.h"
#include "controller/loop_state.h"
#include "controller/reclaimer.h"
#include "core/result.h"

namespace swell::controller {

/// Moves running jobs with switch=requeue to another GPU type: lent GPUs go back, the workers save
/// and leave, Slurm requeues the job, and it asks for the other type. One job moves at a time, to
/// GPUs that are idle, or lent to it, and that no pending job needs.
class TypeSwitcher {
 public:
  TypeSwitcher(LoopState& loop, Reclaimer& reclaimer) : loop_(loop), reclaimer_(reclaimer) {}

  /// Goes on with moves, and begins one that pays, once in TypeInterval.
  void step(double now);
  /// Says for `swell why` where the job moves, or why it stays; empty: it did not consent.
  std::string why(const ElasticJob& job, double now) const;

 private:
  struct CalledOff {
    std::time_t at = 0;
    std::string why;
  };
  Result<TypeMove> propose(const ElasticJob& job) const;
  std::string why_never(const ElasticJob& job, const slurm::JobRecord& record) const;
  std::string why_not_now(const ElasticJob& job, const slurm::JobRecord& record) const;
  double left_s(const ElasticJob& job, const slurm::JobRecord& record,
                const control::SpeedTable& table, double samples_per_s) const;
  double pause_s(const ElasticJob& job) const;
  void begin_one(double now);
  void begin(ElasticJob& job, TypeMove move, double now);
  /// Each returns whether the move goes on.
  bool go_on(JobId id, TypeMove& move, double now);
  bool clear(ElasticJob& job, TypeMove& move, double now);
  bool leave(JobId id, ElasticJob* job, TypeMove& move, double now);
  bool requeue(JobId id, ElasticJob* job, TypeMove& move, double now);
  bool start(JobId id, TypeMove& move, double now);
  bool ask_for(const slurm::JobRecord& record, const std::string& type, TypeMove& move, double now);
  bool call_off(JobId id, ElasticJob* job, const TypeMove& move, const std::string& why);
  void tell_to_stay(ElasticJob& job, std::int64_t order, const std::string& why);

  LoopState& loop_;
  Reclaimer& reclaimer_;
  std::int64_t last_order_ = 0;            ///< of a Requeue; never less than the time in seconds
  double due_ = 0;                         ///< when a job to move is looked for again
  JobId looked_up_to_ = 0;                 ///< the jobs up to this id were looked at since
  std::map<JobId, CalledOff> called_off_;  ///< the last move of each job that was called off
};

}  // namespace swell::controller
