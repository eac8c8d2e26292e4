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
///  * any other error exit is the program's own, and ends the run. While lent GPUs take part they
///  are taken as its cause: the run goes on over the basic demand alone. With recover_s the
///  program is first started again over all GPUs of the run; lent ones go back if it is not ready
///  within recover_s;
///  * a growth that takes longer than grow_s is given up, and counts as failed;
///  * after each failed growth the next one waits longer, and in the end until the run ends;
///  * workers are asked to leave for a growth only when all of them handle the signal. Those that
///  do not leave are not killed: they train on, and the GPUs go back;
///  * a program that fails just after a resize is started again once;
///  * a program that makes no steps any more is started again, first without the lent GPUs;
///  * a companion that is given back is released as soon as its own workers have left;
///  * in live mode GPUs that are offered before the first program runs take part in its first
///  generation, if they come up in time;
///  * in live mode the programs of the next generation start beside the running ones and take their
///  state over (docs/runtime.md). Until the switch is committed the old ones train on, whatever
///  happens; if it cannot be done in time, or the program does not use the runtime, workers are
///  asked to leave as in restart mode.
class GenerationMachine {
 public:
  struct Settings {
    JobId job = 0;
    std::string run;  ///< unique id of this swellrun, given to programs as SWELL_RUN
    int gpus_per_worker = 1;
    bool tells_gpus = false;  ///< see RunFacts
    std::vector<int> sizes;   ///< the totals that the program can run with; empty: any
    int step = 0;  ///< GPUs between allowed totals, from the basic demand on; used without `sizes`
    bool exact = false;  ///< consistency=exact: the program keeps the degrees of its plan
    int restart_signal = 10;
    double restart_timeout_s = 30;  ///< for workers to leave after the restart signal
    double warm_timeout_s = 60;     ///< for a companion's shims to come up
    double stragglers_s = 10;       ///< wait of lent GPUs that are up for others that are not
    double first_offer_s = 0;       ///< wait of the first generation for a first offer
    double first_wait_s = 15;       ///< its wait for GPUs that were offered in that time
    double margin_s = 2;            ///< kept free before each deadline of the controller
    double blame_s = 2;             ///< wait after an error exit for events that explain it
    double end_timeout_s = 30;      ///< for workers to end after INT, TERM or another's failure
    double siblings_s = 1;          ///< for workers to leave after one of them died of the signal
    /// Workers that did not leave for a growth may leave this much later without ending the run.
    double late_s = 60;
    /// A program that fails within this time after a resize is started again once.
    double settle_s = 60;
    /// Exit code of a program that leaves for a resize. If set, 0 always means the end of training.
    std::optional<int> leave_code;
    /// Seconds before the job's time limit at which workers leave; 0: only on Slurm's signal.
    std::optional<double> before_end_s;
    std::string never_grows;  ///< not empty: why the run takes no lent GPUs at all
    /// Losses and recoveries within restart_window_s; after more, lent GPUs are given up.
    int max_restarts = 3;
    double restart_window_s = 600;
    /// A failed program is started again, unless it failed less than recover_s before; lent GPUs
    /// wait recover_s for it to be ready. 0: never.
    double recover_s = 0;
    bool kill_on_bad_exit = true;
    Progress::Settings hang = {};  ///< what counts as a hang
    bool live = false;
    /// Limit of a live growth: starting the programs and moving the state.
    double switch_timeout_s = 600;
    /// Limit of one growth, from its offer until training runs on the lent GPUs; in live mode in
    /// place of switch_timeout_s. 0: no limit.
    double grow_s = 0;
    /// Share of the time to return GPUs that a live switch has before workers are asked to leave.
    double live_share = 0.6;
    double min_live_s = 1;    ///< with less time than this, no switch is tried
    double live_extra_s = 1;  ///< time that a switch may take beyond that of leaving
    /// For live programs to agree on the step at which all leave; at most a quarter of their time.
    double agree_s = 4;
  };

  GenerationMachine(Settings settings, std::vector<WorkerNode> basic);
  GenerationMachine(const GenerationMachine&) = delete;
  GenerationMachine& operator=(const GenerationMachine&) = delete;

  void start(double now);
  /// REQUIRES: `now` never decreases.
  void handle(double now, const event::Any& event);
  void tick(double now);
  /// Returns when tick() must be called at the latest.
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

  // The phases, each with its data. Gathering -> Running -> Restart -> Gathering ...; live mode
  // Running -> LiveSwitch -> Running; from all of them Ending, and Over. Restart and LiveSwitch are
  // the two strategies of a reconfiguration.
  /// Waits for the shims of the next generation.
  struct Gathering {
    std::optional<double> by;                ///< none: the first generation waits for Slurm
    std::optional<Reconfiguration> restart;  ///< none: the first generation
    /// First generation: since when the job's own workers are ready.
    std::optional<double> up_since = std::nullopt;
    std::optional<double> begins_by = std::nullopt;  ///< even if lent ones are on the way
    /// Set if the workers have left for a requeue: until when Slurm has time to do it.
    std::optional<double> requeued_by = std::nullopt;
  };
  /// The run ends when all workers have ended.
  struct Ending {
    std::optional<double> kill_at;
    bool code_is_final = false;
    bool for_requeue = false;  ///< before the time limit: the next run goes on
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
    int under_way = 0;  ///< Allocate actions without an answer
    double since = 0;   ///< when the first of them began
    bool ever = false;
  };

  /// A program has failed and was started again; it is not known to be ready yet.
  struct Recovery {
    double by = 0;               ///< until when lent GPUs wait for it
    bool needs_runtime = false;  ///< ready only when it has begun with the runtime
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
  /// How the workers are changed, and why, if that is not the usual way.
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
  // generation_growth.cc: reasons against a growth, and its time limit
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
  // generation_live.cc: switches while training runs
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
  // generation_end.cc: leaving before the job's time limit, or only for a checkpoint
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
  std::optional<control::Replan> ordered_;  ///< by the owner; waits until other changes have ended
  Phase phase_ = Gathering{};
  control::Requeue requeue_;  ///< the last order; if wait_s is 0, it was called off
  std::string not_requeued_;  ///< why it was not followed; empty: it was
  LeaveRequest leaving_;
  Growth growth_;
  control::JobState state_ = control::JobState::allocated;
  std::string switched_;
  bool tries_snapshots_ = false;  ///< a generation has begun, and may have left snapshots
  Offered offered_;
  LivePace pace_;
  bool devices_apart_ = false;  ///< as Grow says
  double stopped_s_ = 0;
  std::optional<double> paused_since_;  ///< start of a stop that lasts until new workers are ready
  int code_ = 0;
  SignalRecord signals_;
  TimeLimit limit_;
  bool train_alone_ = false;  ///< each worker is a training by itself; the user was told
  std::deque<double> restarts_;
  std::optional<double> last_recovery_;
  std::optional<Recovery> recovery_;
  Progress progress_;
};

}  // namespace swell::launcher
