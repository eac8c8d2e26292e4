// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <vector>

#include "core/policy/measured_speeds.h"
#include "core/policy/rivals/simulated_policy.h"
#include "core/policy/trust.h"
#include "core/redeploy/pauses.h"
#include "sim/ledger.h"
#include "sim/outcome.h"
#include "sim/queue.h"
#include "sim/training_progress.h"
#include "sim/truth.h"
#include "sim/workload.h"

namespace swell::sim {

enum class Phase { unsubmitted, pending, running, done };

/// Phase of a change of plan.
enum class Move {
  none,
  warming,  ///< new workers initialize, the old ones train
  paused,   ///< training stands still while state moves
};

/// One companion: GPUs of one node lent to a job.
struct LentGpus {
  policy::JobId id = 0;
  NodeGpus gpus;
  bool leaving = false;  ///< its GPUs are given back once the state has moved off them
  double benefit = -1;   ///< policy::Grant::benefit
  int change = -1;       ///< the change that lent it, in Outcome::changes; -1: not recorded
};

/// The change of a job that has not ended, while it is recorded.
struct OpenChange {
  std::size_t change = 0;  ///< in Outcome::changes
  double left = 0;         ///< iterations that were left at its begin
  double iteration_s = 0;  ///< of the plan that it is compared with
};

/// The change of plan under way, and what waits for its end.
struct PlanChange {
  Move move = Move::none;
  plan::Layout next;
  redeploy::Cost cost;
  std::set<policy::JobId> late;  ///< companions to reclaim once the present move is done
  Cause late_cause;              ///< the reason to reclaim these
  std::optional<OpenChange> recorded;
};

/// Facts of a job that are known since they were measured.
struct Measurements {
  std::shared_ptr<const perf::Coefficients> coefficients;  ///< its profile; null: none is there
  double profiled_s = 0;                                   ///< time at which its profile is ready
  double awaited_until_s = 0;  ///< when slurmctld waits no longer for it
  int max_gpus = 0;            ///< largest number of GPUs that it trained on
  policy::Trust trust;         ///< what its lent GPUs brought, as the controller judges it
  std::vector<policy::MeasuredSpeed> speeds;
  std::shared_ptr<const perf::Coefficients> corrected;  ///< the profile's, by these speeds
  bool basic_known = false;                             ///< its speed on its basic plan
};

/// When a job came to be what it is.
struct Times {
  double pending_since_s = 0, started_s = 0, reconfigured_s = 0;
};

struct Job {
  Job(const JobSpec& its_spec, const JobType& its_type, const cluster::Cluster& cluster,
      std::uint64_t seed)
      : spec(its_spec),
        type(its_type),
        demand(spread_of(its_type.gpus, cluster, its_type.gpu_type).value_or(Spread{})),
        truth(its_type, cluster, seed, its_spec.id) {}

  const JobSpec& spec;
  const JobType& type;  ///< as it was submitted: JobType::least where its consent is honoured
  const Spread demand;  ///< nodes and GPUs of each on which its own GPUs are
  int wanted_gpus = 0;  ///< GPUs that it was traced with; those of `type` where no consent counts
  double limit_s = 0;   ///< its time limit on the GPUs of `type`
  Truth truth;
  Phase phase = Phase::unsubmitted;
  GpuSet basic;  ///< its own allocation; all its GPUs where a policy replaces the base scheduler
  std::vector<LentGpus> companions;
  plan::Layout basic_plan, current;
  redeploy::Pauses pauses;            ///< of its changes of plan, where Setup::redeployment holds
  std::vector<plan::Layout> history;  ///< plans that it ran, oldest first
  /// Time for which it held GPUs of each type; where a policy replaces the base scheduler.
  std::vector<double> held_s;
  long version = 0;       ///< rises with every change of plan, GPUs or phase; stamps its events
  double grow_after = 0;  ///< earliest time of its next growth, by GrowthInterval
  bool barred = false;    ///< ran out of memory; keeps to what it asked for from then on
  bool offered = false;   ///< a policy has decided with this pending job in view
  bool ran = false;
  bool profiling = false;  ///< the GPUs that it holds measure its profile; it does not train
  TrainingProgress progress;
  PlanChange change;
  Measurements measured;
  Times times;
  JobOutcome outcome;

  GpuSet held(bool with_leaving) const;
  int lent_gpus() const noexcept;
  /// Whether its workers began less than `for_s` seconds ago and train alone, without a profile.
  bool starting(double now_s, double for_s) const noexcept;
};

struct Event {
  enum class Kind {
    submission,
    profile,
    report,   ///< what the job does with its plan is measured
    tabled,   ///< the profile is there that the job's GPUs were held for
    trusted,  ///< a job that was lent nothing for a while may be lent some
    end,
    warmed,
    moved,
    decide,
    decided,
    node_down,
    node_up
  };
  double at_s = 0;
  long number = 0;  ///< orders events of equal time by their creation
  Kind kind = Kind::submission;
  policy::JobId job = 0;
  long stamp = 0;  ///< Job::version when the event was planned; void if it has changed
  int node = 0;
  bool operator<(const Event& other) const noexcept {
    return at_s != other.at_s ? at_s > other.at_s : number > other.number;
  }
};

/// Clocks of slurmctld and swellrun that lending waits for: see docs/clocks.md.
/// They hold for policies that slurmctld runs (SimulationTraits::slurmctld).
struct Clocks {
  double growth_interval_s = 60;  ///< GrowthInterval
  double grant_expiry_s = 15;     ///< GrantExpiry
  double profile_wait_s = 10;     ///< ProfileWait
  /// kFirstOffer_s: seconds by which a program begins later, with what its job was offered by then.
  double first_offer_s = 2;
};

/// How policies that replace the base scheduler come to a job's profile.
enum class Profiles {
  before,   ///< they know it when the job is submitted, for nothing, as published
  running,  ///< ten iterations after its start, as those that lend
  alone,    ///< one GPU measures it before the job may start (Arena, section 3.4)
  full      ///< all GPUs that it asks for do, as for profiles of data parallelism
};
/// Default of Setup::profile_s: what Arena's section 5.8 says of 16 GPUs and four types, and its
/// authors' program of profiles on all GPUs.
constexpr double profile_s(Profiles profiles) noexcept {
  return profiles == Profiles::full ? 240 : 510;
}

/// Settings of one simulation.
struct Setup {
  std::shared_ptr<const cluster::Cluster> cluster;
  const Workload* workload = nullptr;
  const policy::SimulatedPolicy* policy = nullptr;  ///< null: nothing is lent
  const QueueOrder* order = nullptr;
  bool backfill = true;
  std::uint64_t seed = 0;
  bool fixed_decision_time = false;
  double remaining_known = 0;  ///< share of the jobs of which policies see what is left to do
  /// Where policies that replace the base scheduler have profiles from.
  Profiles profiles = Profiles::before;
  /// Time that Profiles::alone and Profiles::full take for a job; below 0: profile_s().
  double profile_s = -1;
  double prediction_error = 0;  ///< relative error injected into coefficients
  Reporting reporting;
  double max_shortfall = policy::Trust::kMaxShortfall;  ///< Trust::heard()
  double failures_per_day = 0;                          ///< failures of each node
  /// Limit of a job's GPUs as a multiple of those it asked for; 0: no limit where it is planned
  /// for.
  double max_factor = 0;
  /// How jobs move under policies that slurmctld runs; none: as SimulationTraits::redeployment
  /// says.
  std::optional<redeploy::Measured> redeployment;
  bool rivals_as_measured = false;  ///< jobs move as `redeployment` says under all policies
  std::optional<Clocks> clocks;     ///< none: policies lend as if slurmctld ran none of them
  bool explain = false;             ///< records Outcome::changes

  bool honours_consent() const noexcept {
    return policy != nullptr && policy->simulation_traits().honours_consent;
  }
  /// How slurmctld lends by the policy, where its clocks hold.
  policy::SimulationTraits::Slurmctld slurmctld() const noexcept {
    using Slurmctld = policy::SimulationTraits::Slurmctld;
    return policy != nullptr && clocks ? policy->simulation_traits().slurmctld : Slurmctld::none;
  }
  /// Whether slurmctld does not run the policy: it is as published.
  bool is_rival() const noexcept {
    return policy != nullptr &&
           policy->simulation_traits().slurmctld == policy::SimulationTraits::Slurmctld::none;
  }
  /// How jobs change their plans as measured; none: the model says what that costs, and nothing is
  /// measured.
  std::optional<redeploy::Measured> measured_way() const noexcept {
    if (policy == nullptr) return std::nullopt;
    return is_rival() && !rivals_as_measured ? std::nullopt : redeployment;
  }
  bool replaces() const noexcept {
    return policy != nullptr && policy->simulation_traits().role == policy::Role::replaces;
  }
  /// The number of GPUs that measure the job's profile before it may start, where they do.
  int gpus_to_profile(const Job& job) const noexcept {
    return profiles == Profiles::full ? job.type.gpus : 1;
  }
};

/// State of the simulated cluster and its jobs, and the basic changes of it.
struct State {
  explicit State(const Setup& its_setup);

  const Setup& setup;
  const cluster::Cluster& cluster;
  Ledger ledger;
  std::vector<Job> jobs;  ///< by id - 1
  /// Pending in no particular order; running by start.
  std::vector<policy::JobId> pending, running;
  double now_s = 0;
  /// As ClusterView::submissions; replaced by a longer list, never changed.
  std::shared_ptr<const std::vector<policy::Submission>> submissions;
  std::priority_queue<Event> events;
  Outcome outcome;
  policy::JobId next_companion = 1000000;
  redeploy::ClusterPauses pauses;
  std::vector<int> kept;   ///< GPUs of each node that a pending job waits for, not to be lent
  bool changed = false;    ///< an event needs a pass of the base scheduler
  bool to_decide = false;  ///< an event needs a decision of the policy
  int unfinished = 0;

  Job& job(policy::JobId id) { return jobs[id - 1]; }
  void plan_event(double at_s, Event::Kind kind, policy::JobId job = 0, long stamp = 0,
                  int node = 0);

  /// Sets whether the job trains with its current plan from now on, and plans its end.
  void set_training(Job& job, bool trains);
  void make_pending(Job& job);
  /// Adds the job to `submissions`.
  void note_submission(const Job& job);
  void start(Job& job, const GpuSet& gpus, plan::Layout plan);
  /// Whether the pending job needs GPUs to measure its profile, before it may start.
  bool awaits_table(const Job& job) const noexcept;
  /// Holds `gpus` for the pending job's profile. That it waits for it counts as time in the queue.
  void start_profile(Job& job, const GpuSet& gpus);
  /// Ends that: the job is pending, with its profile.
  void end_profile(Job& job);
  /// Replaces the plan of a job that is still starting: its first workers are those of `plan`, and
  /// its progress since the start is void.
  void start_anew(Job& job, plan::Layout plan);
  void end(Job& job);
  /// Gives all its companions back at once.
  void drop_companions(Job& job);

  /// Plans the next report on the job's speed: some iterations after its plan has changed.
  void plan_report(Job& job);
  /// Plans the job's profile, where it has none: some iterations from now.
  void plan_profile(Job& job);

 private:
  long next_event_ = 0;
};

}  // namespace swell::sim
