// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/server.h"
#include "controller/agent_sessions.h"
#include "controller/companion_time.h"
#include "controller/config.h"
#include "controller/elastic_job.h"
#include "controller/event_log.h"
#include "controller/grant_book.h"
#include "controller/history.h"
#include "controller/machines.h"
#include "controller/meters.h"
#include "controller/planning.h"
#include "controller/reconcile.h"
#include "controller/state_file.h"
#include "controller/tag_book.h"
#include "controller/user_limits.h"
#include "core/policy/policy.h"
#include "slurm/fabric_source.h"
#include "slurm/slurm_api.h"

namespace swell::controller {

/// The elastic loop: snapshot, decide, apply, tell. Knows nothing of where it is hosted: Slurm, the
/// agents' server and the clock are passed in. One thread calls cycle(); nothing else here is
/// shared but the GrantBook.
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

  /// One round. `now` is a clock that only rises, in seconds.
  /// @return the latest time at which the next round is due; changes may call for an earlier one.
  double cycle(double now);

  /// Writes what the last rounds left for later. Call before the end of slurmctld.
  void finish() { save(); }

  /// While on, nothing is lent and what is lent is reclaimed, each job within its grace. Off at
  /// first.
  void set_draining(bool draining);

  /// No job is given longer to give GPUs back, whatever it asked for; 0: as it asked.
  void set_max_grace(int max_grace_s) noexcept { parts_.config.max_grace_s = max_grace_s; }

  /// Slurm's records at the last look.
  const slurm::Snapshot& snapshot() const noexcept { return snapshot_; }

  /// How many looks at Slurm's records have shown a change.
  long looks() const noexcept { return looks_; }

  /// State of the controller, for tests and for measuring.
  const JobTable& jobs() const noexcept { return jobs_; }
  double last_decide_s() const noexcept { return last_decide_s_; }
  /// Time of this thread's own work in the last round, without waiting for slurmctld.
  double last_own_s() const noexcept { return last_own_s_; }

 private:
  // Agents' messages (agents.cc)
  void handle_agents(double now);
  void answer_hellos(double now);
  void handle(const control::Server::Event& event, double now);
  void handle(const control::Server::Event& event, const control::Hello& hello, double now);
  void handle(ElasticJob& job, const control::GrowDone& done, double now);
  void handle(ElasticJob& job, const control::Released& released, double now);
  void settle_unseen(double now);
  void companion_unseen(ElasticJob& job, const slurm::JobRecord& record, const std::string& nonce,
                        const control::Released& released, double now);
  /// `record`: what Slurm has just said of the companion; null: it is asked.
  void companion_failed(ElasticJob& job, const control::Released& released,
                        const slurm::JobRecord* record = nullptr);
  void handle(ElasticJob& job, const control::Status& status, double now);
  void handle(ElasticJob& job, const control::Profile& profile, double now);
  void handle(ElasticJob& job, const control::Switched& switched, double now);
  void handle(ElasticJob& job, const control::Bye& bye, double now);
  // For the history (records.cc)
  void heard(const std::string& kind, const Json& line);
  void keep_profile(const ElasticJob& job);
  /// Takes the scale tables that the history kept, of jobs that no decision has planned for yet.
  void take_kept_scales();
  void take_scales(const std::map<JobId, planner::NamedTable>& scales);
  void ask_history(const control::Server::Event& event, const control::Ask& ask, double now);
  void answer_history(double now);
  // Requests of owners (asks.cc)
  void handle(const control::Server::Event& event, const control::Ask& ask, double now);
  Result<control::Answer> answer(ElasticJob& job, const control::Ask& ask, double now);
  Result<control::Answer> replan(ElasticJob& job, const control::Ask& ask, double now);
  control::Answer why(const ElasticJob& job, double now);
  void welcome(const control::Server::Event& event, const control::Hello& hello, ElasticJob& job,
               double now);
  void refuse(control::ConnectionId connection, const std::string& reason, double now);
  void agent_gone(ElasticJob& job, double now);
  void growth_failed(ElasticJob& job, double now);
  void take_start(ElasticJob& job, double start_s, double now);
  ElasticJob* job_of(control::ConnectionId connection);

  void note_round(double seconds, double now);

  // Slurm's records (controller.cc)
  /// Whether anything had changed; nothing: slurmctld did not answer.
  std::optional<bool> look(double now);
  void report(const Change& change, double now);
  /// The one way in which Swell ends a job: only where slurmctld's record of this moment says that
  /// it is this companion.
  void cancel(const CompanionIdentity& companion, const std::string& reason);
  void tell_shrink(ElasticJob& job, const Companion& companion, double now);

  // GPU types of waiting jobs (types.cc)
  /// Moves jobs with types= and table= that wait to the type on which they are predicted to end
  /// first.
  void choose_types(double now);
  /// Says for `swell why` why a waiting job has its type; empty: its type is not chosen.
  std::string why_type(const slurm::JobRecord& pending) const;

  // Deadlines (controller.cc)
  void keep_deadlines(double now);
  void end_all(ElasticJob& job, double now, const std::string& reason);
  // Knowledge of trainings (trainings.cc)
  std::shared_ptr<const cluster::Cluster> machines();
  const slurm::JobRecord* record_of(JobId job) const;
  void take_sheet(ElasticJob& job, const Json& model, double now);
  void check_table(ElasticJob& job);
  void take_reports(double now);
  /// A job's GPUs as planners number them. The error says what nobody can tell: a sentence for the
  /// job's owner.
  struct JobGpus {
    std::shared_ptr<const cluster::Cluster> machines;
    HeldGpus basic, held;
    plan::Allocations allocations;
  };
  Result<JobGpus> gpus_of(const ElasticJob& job);
  bool take_report(ElasticJob& job, double now);
  void refuse_report(ElasticJob& job, const std::string& why);
  void take_back_from_distrusted(ElasticJob& job, double now);
  void keep_promises(double now);
  void keep_quotas(double now);
  void keep_user_limits(double now);
  /// Takes back what its node or its job can no longer use (returns.cc).
  void return_what_must(double now);
  void tell_the_alone();
  /// When a companion has to end before its job, and why.
  CompanionEnd end_of(const Companion& companion, const slurm::JobRecord& parent) const;
  void explain(const policy::ClusterView& view);
  std::string why_no_profile(const ElasticJob& job, double now) const;
  void remember(const ElasticJob& job);
  // Decisions (decisions.cc)
  std::shared_ptr<const cluster::Fabric> fabric();
  policy::ClusterView view(double now);
  void decide(double now);
  void take_planned(double now, std::chrono::milliseconds patience, bool at_once);
  void drain(double now);
  /// The companion is to end by `by`, or within the job's grace; its agent is not told yet.
  /// `cause`: a label of swell_reclaims (meters.h). REQUIRES: it does not leave yet.
  void leave(ElasticJob& job, Companion& companion, double now, const char* cause,
             const std::string& reason, std::optional<double> by = std::nullopt);
  void reclaim(ElasticJob& job, Companion& companion, double now, const char* cause,
               const std::string& reason);
  void apply(const policy::Decisions& decisions, const policy::ClusterView& view, double now);
  void watch_deadlines(const std::vector<policy::DeadlineState>& states,
                       const policy::ClusterView& view);
  struct Planned {
    Json json;           ///< empty: none, or none that the program would read
    std::string reason;  ///< what it is expected to bring, for people
    double times = 0;    ///< the same: as many times as fast as before; 0: nothing is predicted
    /// From the decision that is carried out; null: the program makes its own plan.
    const plan::Layout* layout = nullptr;
  };
  Planned plan_for(ElasticJob& job, const plan::Layout& layout, const policy::ClusterView& view);
  void grant(ElasticJob& job, const std::vector<policy::Grant>& grants, const Planned& plan,
             const policy::ClusterView& view, double now);
  /// Has the job run the plan on the GPUs that it has.
  void run_instead(ElasticJob& job, const Planned& plan, double now);
  void save();
  void save_in_time(double now);
  void write_comments(double now);
  void comment_waits(ElasticJob& job, double now);

  Parts parts_;
  EventLog events_;
  Meters meters_;
  UserLimits user_limits_;
  std::unique_ptr<policy::Policy> policy_;
  std::unique_ptr<Planning> planning_;  ///< null: the policy makes no plans
  Machines machines_;
  slurm::FabricSource fabric_;
  std::shared_ptr<const slurm::KnownFabric> known_fabric_;
  JobTable jobs_;
  slurm::Snapshot snapshot_;
  long looks_ = 0;
  double types_due_ = 0;               ///< choose_types() looks again
  std::time_t first_look_ = 0;         ///< when the first one was taken
  std::optional<double> snapshot_at_;  ///< when `snapshot_.taken` was; none: there is none yet
  bool decide_due_ = false, draining_ = false;
  SavedState saved_;
  std::optional<SavedState> written_;  ///< none: not known to be written yet
  std::optional<double> saved_at_;     ///< when save_in_time() last wrote
  bool save_due_ = false;              ///< decisions or owners have changed the state
  /// Slurm could not write an AdminComment yet: no other is tried before.
  struct CommentsWait {
    double until = 0;        ///< of any job
    double again_until = 0;  ///< of jobs that had to wait before
    double pause_s = 0;
  } comments_wait_;
  AgentSessions sessions_;
  double last_decide_s_ = 0, last_own_s_ = 0;
  std::optional<policy::ClusterView> seen_by_askers_;  ///< of this round: a view takes long to make
  /// Rounds that looked at a changed queue, since EventLog last got a line about them.
  struct RoundTimes {
    std::vector<double> took_s;  ///< from begin to end, waiting for slurmctld's answers included
    double own_sum_s = 0, decide_sum_s = 0;  ///< of this thread's own work
    double planning_max_s = 0;               ///< of the planning thread, for one decision
    double since = 0;
  } round_times_;
};

}  // namespace swell::controller
