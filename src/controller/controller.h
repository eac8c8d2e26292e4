// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "control/server.h"
#include "controller/agent_messages.h"
#include "controller/cluster_views.h"
#include "controller/comment_writer.h"
#include "controller/decider.h"
#include "controller/history_requests.h"
#include "controller/loop_state.h"
#include "controller/owner_requests.h"
#include "controller/reclaimer.h"
#include "controller/report_reader.h"
#include "controller/returns.h"
#include "controller/scale_keeper.h"
#include "controller/slurm_changes.h"
#include "controller/state_keeper.h"
#include "controller/type_mover.h"
#include "controller/type_switcher.h"

namespace swell::controller {

/// Runs the elastic loop: calls its parts in turn, each round. Knows nothing of where it is hosted:
/// Slurm, the agents' server and the clock are passed in. One thread calls cycle(); nothing else
/// here is shared but the GrantBook.
class Controller {
 public:
  struct Parts {
    Config config;
    slurm::SlurmApi* slurm = nullptr;
    control::Server* server = nullptr;
    GrantBook* book = nullptr;
    TagBook* tags = nullptr;  ///< null: nobody asks for them
    slurm::FabricSource::Find
        fabric_files;            ///< topology.conf and calibration; null: neither is read
    std::string state_path;      ///< empty: nothing is kept over restarts
    std::string place_problem;   ///< why the expansions' place is not kept; empty: it is
    History* history = nullptr;  ///< null: none is kept
    policy::Preemption preemption = policy::Preemption::as_reclaimed;
    std::function<void(const std::string&)> log;
    std::function<std::string()> nonce;  ///< a new unguessable name for a grant
    /// Called from another thread when a round has something to do; may be null.
    std::function<void()> wake;
  };
  explicit Controller(Parts parts);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// One round. `now` is a clock that only rises, in seconds.
  /// @return the latest time at which the next round is due; changes may call for an earlier one.
  double cycle(double now);

  /// Writes what the last rounds left for later. Call before the end of slurmctld.
  void finish() { state_.save(); }

  /// While on, nothing is lent and what is lent is reclaimed, each job within its grace. Off at
  /// first.
  void set_draining(bool draining) { decider_.set_draining(draining); }

  /// No job is given longer to give GPUs back, whatever it asked for; 0: as it asked.
  void set_max_grace(int max_grace_s) noexcept { loop_.config.max_grace_s = max_grace_s; }

  /// Slurm's records at the last look.
  const slurm::Snapshot& snapshot() const noexcept { return loop_.snapshot; }

  /// How many looks at Slurm's records have shown a change.
  long looks() const noexcept { return changes_.looks(); }

  /// State of the controller, for tests and for measuring.
  const JobTable& jobs() const noexcept { return loop_.jobs; }
  /// Time of this thread's own work in the last round, without waiting for slurmctld.
  double last_own_s() const noexcept { return last_own_s_; }

 private:
  /// Hears an event for the meters and the history (records.cc).
  void heard(const std::string& kind, const Json& line);
  void note_round(double seconds, double now);
  void keep_deadlines(double now);
  void tell_the_alone();

  LoopState loop_;
  StateKeeper state_;
  CommentWriter comments_;
  TypeMover types_;
  Reclaimer reclaimer_;
  TypeSwitcher switcher_;
  SlurmChanges changes_;
  ScaleKeeper scales_;
  ClusterViews views_;
  HistoryRequests history_;
  OwnerRequests requests_;
  ReportReader reports_;
  AgentMessages messages_;
  Decider decider_;
  Returns returns_;
  double last_own_s_ = 0;
  /// Rounds that looked at a changed queue, since EventLog last got a line about them.
  struct RoundTimes {
    std::vector<double> took_s;  ///< from begin to end, waiting for slurmctld's answers included
    double own_sum_s = 0, decide_sum_s = 0;  ///< of this thread's own work
    double since = 0;
  } round_times_;
};

}  // namespace swell::controller
