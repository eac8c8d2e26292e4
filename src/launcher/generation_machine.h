// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "control/messages.h"
#include "core/plan/plan.h"
#include "launcher/action.h"
#include "launcher/action_list.h"
#include "launcher/assignment_planner.h"
#include "launcher/deferred_events.h"
#include "launcher/event.h"
#include "launcher/exit.h"
#include "launcher/growth.h"
#include "launcher/leave_request.h"
#include "launcher/live_pace.h"
#include "launcher/live_switch.h"
#include "launcher/progress.h"
#include "launcher/rank_assignment.h"
#include "launcher/reconfiguration.h"
#include "launcher/restart.h"
#include "launcher/run_state.h"
#include "launcher/running.h"
#include "launcher/signal_record.h"
#include "launcher/timer_table.h"
#include "launcher/worker_environment.h"

namespace swell::launcher {

/// Decides when an elastic run starts, stops and restarts its workers, and over which GPUs:
/// docs/journeys.md. Pure: events and the time go in, actions come
/// out; the agent carries them out. Times are seconds of one clock.
///
/// Shims live as long as their allocation. A generation starts the program on them, and ends when
/// the program has left every one. Rules:
///  * a companion's loss, or a warning that it is about to end, never ends the run;
///  * an error exit that nothing of that kind explains is the program's own, and ends the run.
///  While lent GPUs take part it is put down to them: the run goes on over the basic demand alone;
///  with recover_s the program is first started again over all GPUs that the run has, lent ones
///  too, which go back if it is not ready within recover_s;
///  * a growth that takes longer than grow_s is given up, and has gone wrong;
///  * growths that went wrong make the next wait, in growing intervals, and in the end for good;
///  * workers are asked to leave for a growth only when all of them handle the signal. Those that
///  do not leave are not killed: they train on, and the GPUs go back;
///  * a program that fails just after a resize is started again once;
///  * a program that makes no steps any more is started again, first without the lent GPUs;
///  * a companion that is given back is released as soon as its own workers have left;
///  * in live mode GPUs that are offered before the first program runs take part in its first
///  generation, if they come up in time;
///  * in live mode the programs of the next generation start beside the running ones and take their
///  state over (docs/runtime.md). Until that is committed the old ones train on, whatever happens;
///  where it cannot be done in time, or the program does not use the runtime, workers are asked to
///  leave as in restart mode.
class GenerationMachine {
 public:
  struct Settings {
    JobId job = 0;
    std::string run;  ///< tells this swellrun from others of the job, for SWELL_RUN
    int gpus_per_worker = 1;
    bool tells_gpus = false;  ///< see RunFacts
    std::vector<int> sizes;   ///< the totals that the program can run with; empty: any
    int step = 0;  ///< between total sizes, from the basic demand on; used if no sizes are given
    bool exact = false;  ///< consistency=exact: the program keeps the degrees of its plan
    int restart_signal = 10;
    double restart_timeout_s = 30;  ///< for workers to leave after the restart signal
    double warm_timeout_s = 60;     ///< for a companion's shims to come up
    double stragglers_s = 10;       ///< lent GPUs that are up wait for others that are not
    double first_offer_s = 0;   ///< the job's own workers wait for a first offer before they begin
    double first_wait_s = 15;   ///< and for lent ones that were offered by then
    double margin_s = 2;        ///< kept free before a deadline of the controller
    double blame_s = 2;         ///< an error exit may be explained by news that come this late
    double end_timeout_s = 30;  ///< for workers to end after INT, TERM or another's failure
    double siblings_s = 1;      ///< for workers to leave after one of them died of the signal
    /// Workers that did not leave for a growth may still do so; their exit is not the end.
    double late_s = 60;
    /// A program that fails so soon after a resize is started again once.
    double settle_s = 60;
    /// The exit code of a program that leaves for a resize: 0 is then always the end.
    std::optional<int> leave_code;
    /// Seconds before the job's time limit at which workers leave; 0: only on Slurm's signal.
    std::optional<double> before_end_s;
    std::string never_grows;  ///< not empty: why the run takes no lent GPUs at all
    /// Losses and recoveries within restart_window_s, before lent GPUs are done without.
    int max_restarts = 3;
    double restart_window_s = 600;
    /// A program that fails is started again, unless it failed so soon before, and lent GPUs wait
    /// so long for it to be ready; 0: never.
    double recover_s = 0;
    bool kill_on_bad_exit = true;
    Progress::Settings hang = {};  ///< what is taken for a hang
    bool live = false;
    /// For a live growth: programs start, and the state is moved.
    double switch_timeout_s = 600;
    /// For one growth, from its offer until training runs on the lent GPUs; in live mode in place
    /// of switch_timeout_s. 0: no limit.
    double grow_s = 0;
    /// A live switch has this share of the time to return GPUs before workers are asked to leave.
    double live_share = 0.6;
    double min_live_s = 1;    ///< with less time than this, it is not tried
    double live_extra_s = 1;  ///< time that a switch may take beyond that of leaving
    /// For live programs to agree on a step at which all leave; a quarter of their time at most.
    double agree_s = 4;
  };

  GenerationMachine(Settings settings, std::vector<WorkerNode> basic);
  GenerationMachine(const GenerationMachine&) = delete;
  GenerationMachine& operator=(const GenerationMachine&) = delete;

  void start(double now);
  /// `now` does not go back.
  void handle(double now, const event::Any& event);
  void tick(double now);
  /// When tick() must be called at the latest.
  std::optional<double> deadline() const;
  /// Returns the actions to do since the last call, in order.
  std::vector<action::Any> take() { return out_.take(); }

  bool has_begun() const { return run_.has_begun(); }  ///< a program was started at some time
  control::Status status() const;
  /// Returns the rank assignment of the current generation.
  const RankAssignment& assignment() const noexcept { return run_.assignment; }
  std::vector<JobId> companions() const { return run_.companions.jobs(); }
  bool over() const { return is<Over>(); }

 private:
  static constexpr const char* kEnds = "the job is ending";

  // The phases, each with what it needs. Gathering -> Running -> Restart -> Gathering ...; live
  // mode Running -> LiveSwitch -> Running; from all of them Ending, and Over. Restart and
  // LiveSwitch are the two strategies of a reconfiguration.
  /// Waits for the shims of the next generation.
  struct Gathering {
    std::optional<double> by;                ///< none: the first generation waits for Slurm
    std::optional<Reconfiguration> restart;  ///< none: the first generation
    /// The first generation, since when the job's own workers are there.
    std::optional<double> up_since = std::nullopt;
    std::optional<double> begins_by = std::nullopt;  ///< though lent ones may be on the way
    /// The workers have left for Slurm to requeue the job, which is waited for until then.
    std::optional<double> requeued_by = std::nullopt;
  };
  /// The run ends when all workers have.
  struct Ending {
    std::optional<double> kill_at;
    bool code_is_final = false;
    bool for_requeue = false;  ///< before the job's own end: the next run goes on
  };
  struct Over {};
  using Phase = std::variant<Gathering, Running, LiveSwitch, Restart, Ending, Over>;

  /// The job's own end.
  struct TimeLimit {
    std::optional<double> ends_at;  ///< none: unlimited, or not known yet
    double before_s = -1;  ///< seconds before it at which workers leave; negative: not known yet
  };

  /// GPUs that the controller has offered.
  struct Offered {
    int under_way = 0;  ///< Allocate actions
    double since = 0;   ///< the first of them
    bool ever = false;
  };

  /// A program has failed and was started again; it is not known to be ready yet.
  struct Recovery {
    double by = 0;               ///< for lent GPUs to wait for it
    bool needs_runtime = false;  ///< it is ready when it has begun with that
  };

  // Each handles one kind of event. generation_workers.cc: workers, Slurm and the user
  void on(double now, const event::Hello& hello);
  void on(double now, const event::Exited& exited);
  void on(double now, const event::Listens& listens);
  void on(double now, const event::Lost& lost);
  void on(double now, const event::Notice& notice);
  void on(double now, const event::StepEnded& ended);
  void on(double now, const event::Signalled& signalled);
  // generation_companions.cc
  void on(double now, const event::Allocated& allocated);
  void on(double now, const event::Released& released);
  void on(double now, const control::Grow& grow);
  void on(double now, const control::Shrink& shrink);
  void on(double now, const event::CanRunWith& can);
  // generation_growth.cc
  void on(double now, const event::TrainsAlone& alone);
  void on(double now, const event::GrowsNoMore& no_more);
  // generation_hang.cc
  void on(double now, const event::MadeSteps& made);
  void on(double now, const event::Wrote&);
  void on(double now, const event::StoodStill&);
  // generation_live.cc
  void on(double now, const control::Replan& order);
  void on(double now, const event::Begun& begun);
  void on(double now, const event::Switching& switching);
  void on(double now, const event::LetGo& let_go);
  void on(double now, const event::Switched& switched);
  void on(double now, const event::Stopped& stopped);
  // generation_end.cc
  void on(double now, const event::JobEnds& ends);
  void on(double now, const control::Requeue& order);
  // Events that were put off during a live switch
  void on(double now, const WorkerReady& ready);
  void on(double now, const RestartRequested& request);
  void handle(double now, DeferredEvents events);

  // generation_machine.cc: phases; generation_workers.cc: workers
  void advance(double now);
  bool waits_for_lent(double now);
  void start_generation(double now, RankAssignment assignment);
  void begin_growing(double now);
  /// How the workers are changed, and, where that is not the usual way, why.
  struct Choice {
    Strategy strategy = Strategy::none;
    std::string why = {};
  };
  Choice choose(double now, Purpose purpose) const;
  void begin_restart(double now, Purpose purpose, double by, bool asks = true);
  void restart_killed(double now, Purpose purpose, double by);
  void return_to_running();
  void leaving_is_late(double now);
  void leave_late(double now);
  void leave_for_reclaim(double now, double by);
  void kill_running(double now);
  void kill_there(double now, HeldCompanion& companion);
  void fail(double now, WorkerId worker, Exit exit);
  void cuts_short(int signal);
  void ends_with_others(double now, double by);
  std::vector<WorkerId> with_next(std::vector<WorkerId> workers) const;
  void misses(int signal);
  std::optional<double> passes_missed_at() const;
  void pass_missed(double now);
  void begin_ending(Ending next, double now);
  void end(double now, int signal, std::optional<double> kill_at, bool code_is_final = false);
  void finish();
  // generation_timers.cc
  using Timers = TimerTable<GenerationMachine>;
  static const Timers& timers();
  void gathering_is_late(double now);
  void companions_are_late(double now);
  // generation_recovery.cc: a program that has failed
  void decide(double now);
  void fail_for_good(double now);
  bool ends_for_signal(const Exit& exit, double now);
  bool recovers(double now);
  bool retries(double now);
  void begin_otherwise(double now);
  bool restarts_too_often(double now);
  bool is_ready(bool needs_runtime) const;
  bool is_ready_again() const;
  std::optional<double> holds_until() const;
  void give_up_recovery(double now);
  void end_pause(double now);
  // generation_hang.cc
  std::optional<double> hangs_at() const;
  void restart_hung(double now);
  // generation_growth.cc: what speaks against a growth, and how long one may take
  void pause_growth(double now, const std::string& why, bool for_good = false);
  std::string no_growth() const;
  void tell_no_growth();
  double grown_by() const;
  std::string took_too_long() const;
  void end_growth();
  bool is_joining(const HeldCompanion& companion) const;
  std::optional<double> growth_limit() const;
  void call_off_leaving(double now);
  void keep_growth_limit(double now);
  // generation_live.cc: switches beside the running training
  void begin_switch(double now, Purpose purpose, double by, double answer_by,
                    bool is_growth_limit = false);
  void give_back_lent(double now);
  void reclaim_by_leaving(double now, const std::string& why);
  bool defers(DeferredEvent event, bool spoils, CallOffCause cause = CallOffCause::worker_ended);
  void switch_committed(double now, const SwitchOutcome& outcome);
  void switch_aborted(double now, const LiveSwitch& one, const SwitchOutcome& outcome,
                      SwitchEnd end, bool for_signal);
  bool was_let_go(WorkerId worker) const;
  void run_ordered(double now);
  void refuse_plan(const std::string& why);
  void lose_silent(double now, const std::vector<WorkerId>& workers);
  bool is_live() const {
    return settings_.live && in<Running>() != nullptr && in<Running>()->has_begun;
  }
  // generation_end.cc: before the job's own end, or for a checkpoint alone
  std::optional<double> leaves_at() const;
  void leave_before_end(double now, const std::string& why, bool asks);
  void leave_and_return(double now, bool asks);
  std::string why_not_requeue() const;
  void wait_for_requeue(double now);
  void stay(double now, const std::string& why);
  // generation_companions.cc
  void reclaim(double now, HeldCompanion& companion, const std::string& reason);
  void give_back(double now, HeldCompanion& companion, const std::string& why);
  void lose(double now, JobId job, const std::string& why);
  bool release_if_left(JobId job);
  bool joiners_wait() const;
  std::string why_useless(const HeldCompanion& companion) const;
  void fall_back(double now, const std::string& why);
  bool is_warming() const;

  template <typename P>
  bool is() const {
    return std::holds_alternative<P>(phase_);
  }
  template <typename P>
  P* in() {
    return std::get_if<P>(&phase_);
  }
  template <typename P>
  const P* in() const {
    return std::get_if<P>(&phase_);
  }
  bool is_failing() const { return in<Running>() != nullptr && in<Running>()->failure.has_value(); }
  action::StartWorkers start_of(int generation, const RankAssignment& assignment);
  /// Restart mode: some workers have ended by themselves, as all do at the training's end.
  bool is_ending_by_itself() const {
    return is<Running>() && !is_live() && !is_failing() && !run_.all_train();
  }
  void want(const Json& plan);
  void drop_unfit_plan(const RankAssignment& next);
  void set_state(control::JobState state);

  Settings settings_;
  RunState run_;
  ActionList out_;
  AssignmentPlanner planner_;
  std::optional<control::Replan> ordered_;  ///< by the owner; waits until nothing else changes
  Phase phase_ = Gathering{};
  control::Requeue requeue_;  ///< the last order; without a wait it was called off
  std::string not_requeued_;  ///< why it was not followed; empty: it was
  LeaveRequest leaving_;
  Growth growth_;
  control::JobState state_ = control::JobState::allocated;
  std::string switched_;
  bool tries_snapshots_ = false;  ///< some generation has begun, which may have left some
  Offered offered_;
  LivePace pace_;
  bool devices_apart_ = false;  ///< as Grow says
  double stopped_s_ = 0;
  std::optional<double> paused_since_;  ///< until workers that were started since are ready
  int code_ = 0;
  SignalRecord signals_;
  TimeLimit limit_;
  bool train_alone_ = false;  ///< each worker is a training by itself; it has been said
  std::deque<double> restarts_;
  std::optional<double> last_recovery_;
  std::optional<Recovery> recovery_;
  Progress progress_;
};

}  // namespace swell::launcher
