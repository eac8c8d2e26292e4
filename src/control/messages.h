// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/json.h"
#include "core/result.h"

/// Messages between a job's agent (in swellrun) and the controller (in slurmctld), and between the
/// agent and its worker steps. Each struct is one JSON object {"type":NAME,...}; unknown
/// members are ignored, so that a newer side may send more. docs/protocol.md describes the
/// exchange.
namespace swell::control {

/// Version of the protocol. Sides of different versions refuse each other with a reason.
inline constexpr int kProtocolVersion = 2;
/// Returns the PACKAGE_VERSION of this build.
const char* build() noexcept;
/// Largest plan or profile as JSON, in bytes: with the rest of its message it fits one frame.
inline constexpr std::size_t kMaxDocument = 32768;

/// Largest number of GPUs, and of workers, of one job.
inline constexpr int kMaxGpus = 1'000'000;

using JobId = std::uint32_t;

/// Start of a companion's comment, before the nonce by which job_submit/swell knows its grant.
inline constexpr const char* kGrantComment = "swell-grant=";

/// State of a job in a reconfiguration (docs/journeys.md).
enum class JobState { allocated, warming, ready, switching, active, draining, released };
const char* to_text(JobState state) noexcept;  ///< "ALLOCATED", "WARMING", ...
std::optional<JobState> job_state_from(const std::string& text);

// ---- agent to controller

/// First message of a connection: which job this agent manages.
struct Hello {
  static constexpr const char* type = "hello";
  JobId job = 0;
  int version = kProtocolVersion;
  std::string host;  ///< where the agent runs, for messages to people
  int workers = 0;   ///< workers on the basic demand
  int gpus_per_worker = 1;
  std::vector<JobId> companions;  ///< expansions that it holds already (after a lost connection)
  std::string no_growth;          ///< as in Status
  std::vector<int> sizes;         ///< as in Status
  /// Live mode: the model that its user names (core/models/model.h); empty: none was named.
  Json model;
};

/// Result of one offer: a companion's job id, or the reason why there is none.
struct OfferResult {
  std::string nonce;
  JobId companion = 0;  ///< 0: refused
  std::string reason;   ///< if refused: salloc's words
};

/// Answer to Grow, once all its offers were tried.
struct GrowDone {
  static constexpr const char* type = "grow-done";
  std::vector<OfferResult> results;
};

/// The agent no longer has this companion: it was lost, or its workers have left and the agent has
/// cancelled it.
struct Released {
  static constexpr const char* type = "released";
  JobId companion = 0;
  std::string reason;
  bool failed = false;   ///< its workers ended or never started, perhaps because of the node
  bool started = false;  ///< if it failed: whether a worker had started there
};

/// Sent whenever the state or the generation changes, and as a heartbeat.
struct Status {
  static constexpr const char* type = "status";
  JobState state = JobState::allocated;
  int generation = 0;
  int workers = 0;           ///< workers that run, or are being started
  double stopped_s = 0;      ///< how long the last reconfiguration stopped the training
  std::string switched;      ///< result of the last live switch, for people; empty: none yet
  std::string no_growth;     ///< why the job takes no GPUs now, for people; empty: it does
  std::vector<int> sizes;    ///< numbers of GPUs that the program can run on, rising; empty: any
  std::string plan_refused;  ///< why the last requested plan was refused; empty: it was not
  double start_s = 0;  ///< from the last start of all programs to their first step; 0: not known
  int lost_generation =
      0;  ///< the change that led to this generation cost `lost_s` of training; 0: not known
  double lost_s = 0;
  std::int64_t requeue_order = 0;  ///< order of the Requeue that the next two answer; 0: none yet
  bool has_left = false;           ///< the workers have left for Requeue; the job waits to be ended
  std::string not_requeued;      ///< why the last Requeue was not followed, for people; else empty
  std::int64_t steps = 0;        ///< steps that the training has made; 0: not known
  std::int64_t total_steps = 0;  ///< steps at the training's end; 0: not known
};

/// Measurements of the running generation, once all its ranks have reported, and again whenever
/// they have changed; docs/profiler.md.
struct Profile {
  static constexpr const char* type = "profile";
  int generation = 0;
  std::vector<JobId> companions;  ///< companions that it trains on
  double step_s = 0;              ///< seconds of one step, as measured
  Json profile;                   ///< core/perf/profile_json.h; at most kMaxDocument bytes
};

/// The training has changed its GPUs or its plan, and paused for it.
struct Switched {
  static constexpr const char* type = "switched";
  std::string mode;    ///< "live" or "restart"
  int generation = 0;  ///< the new generation
  int workers = 0;     ///< the new number of workers
  double stopped_s = 0;
  /// Live: {"prepare_s","wait_s","quiesce_s","move_s","commit_s","bytes":{PATH: BYTES}}; the job
  /// trains during the first two.
  Json parts;
};

/// The program has ended: the agent disconnects for good.
struct Bye {
  static constexpr const char* type = "bye";
  int exit_code = 0;
};

// ---- controller to agent

/// Answer to a Hello that is accepted.
struct Welcome {
  static constexpr const char* type = "welcome";
  int version = kProtocolVersion;
  std::string elastic;  ///< the job's spec, as ElasticSpec::text() writes it
};

/// Answer to a Hello that is not accepted; the connection is closed after it.
struct Refused {
  static constexpr const char* type = "refused";
  std::string reason;
};

/// A companion that the agent may create, with exactly these values, until the offer expires.
struct Offer {
  std::string nonce;  ///< goes into the companion's comment
  std::string name;   ///< the companion's job name
  std::string node;
  std::string partition;
  std::string account;   ///< empty: the default
  std::string qos;       ///< QOS of companions, for the agent's check; empty: any
  std::string gpu_type;  ///< empty: GPUs without a type
  int gpus = 0;
  int workers = 0;
  int cpus = 0;
  std::int64_t memory_mib = 0;  ///< 0: let Slurm's defaults decide
  int time_limit_min = 0;       ///< 0: no limit
  int warn_s = 0;               ///< for --signal: seconds before its end at which Slurm warns it
};

/// Lends GPUs: the agent creates these companions together, then reconfigures once.
struct Grow {
  static constexpr const char* type = "grow";
  std::vector<Offer> offers;
  int expires_s = 0;   ///< counted from the arrival
  Json plan;           ///< plan for all GPUs then (core/plan/plan.h); empty: the program decides
  std::string reason;  ///< the expected gain, for people
  bool devices_apart = false;  ///< a program can open only the GPUs of its own allocation
};

/// Takes companions back: their workers save and leave, the agent cancels them and sends Released.
/// The controller cancels those that still run after `deadline_s`.
struct Shrink {
  static constexpr const char* type = "shrink";
  std::vector<JobId> companions;
  int deadline_s = 0;  ///< counted from the arrival
  std::string reason;  ///< for people: "needed by job 17", "preempted by Slurm"
  Json plan;           ///< plan for the GPUs that are left; empty: the program decides
};

/// Asks for another plan on the GPUs that the job has.
struct Replan {
  static constexpr const char* type = "replan";
  Json plan;
  std::string reason;  ///< for people: who wants it
};

/// Slurm is about to requeue the job: its workers save and leave, the agent says so in Status, and
/// waits to be ended. If the job is not ended in time, or the requeue is called off, the program
/// starts again on the GPUs that the job has.
struct Requeue {
  static constexpr const char* type = "requeue";
  std::int64_t order = 0;  ///< its number among the job's orders; called_off repeats the number
  int wait_s = 0;          ///< how long to wait for the end once the workers have left
  bool called_off = false;
  std::string reason;  ///< for people
};

// ---- a job's owner (the swell command) and controller

/// Request of a job's owner; the only message of its connection.
struct Ask {
  static constexpr const char* type = "ask";
  JobId job = 0;
  int version = kProtocolVersion;
  std::string what;  ///< replan, pause, resume, max, why, history or metrics
  int number =
      0;  ///< for max: GPUs; for history: number of the last known event; it may exceed kMaxGpus
  Json plan;  ///< for replan
  /// For history, as is `profiles`; older controllers ignore both. If not 0, the answer has at most
  /// this many of the last changes of the job's GPUs.
  int last = 0;
  bool profiles = false;  ///< for history: returns each reported profile, too
  /// For replan, in place of a plan: another schedule (Plan::schedule) for the plan that runs.
  std::string schedule{};
};

/// Answer to Ask, after which the connection is closed. Refused is sent for a refusal.
struct Answer {
  static constexpr const char* type = "answer";
  std::string text;  ///< for people
  Json details;      ///< for programs; empty: no details
};

// ---- worker (in a step) to agent

/// A worker's shim is up on its node and waits for WorkerStart.
struct WorkerHello {
  static constexpr const char* type = "worker-hello";
  int generation = 0;
  int group = 0;  ///< number of its pair of allocation and node, which is a node for torchrun
  int local_rank = 0;
  std::string host;
  int port = 0;    ///< a free port on this host, for MASTER_PORT
  JobId step = 0;  ///< SLURM_STEP_ID
  /// build() of the worker's swellrun; empty: it is too old to send this.
  std::string build;
  /// Live mode: why its GPUs take one program at a time (core/compute_mode.h); empty: they take
  /// more.
  std::string one_program;
  /// How its step differs from what swellrun asked srun for, for people; empty: it does not.
  std::string misfit;
};

/// Slurm has sent the program of this worker a signal that concerns the whole job.
struct WorkerNotice {
  static constexpr const char* type = "worker-notice";
  int signal = 0;  ///< signal that Slurm sent to the step: its allocation is about to end
};

/// The program now handles or blocks the restart signal, so it can be asked to leave.
struct WorkerListens {
  static constexpr const char* type = "worker-listens";
  int generation = 0;  ///< generation of the program, as WorkerStart gave it
};

/// Live mode: this worker's keeper listens for its program (docs/runtime.md).
struct WorkerRuntime {
  static constexpr const char* type = "worker-runtime";
  std::string socket;   ///< path on its node
  std::string address;  ///< "address:port" for other nodes
  std::string problem;  ///< why there is no keeper; empty: there is one
};

/// Live mode: the measurements of the program are stable, or have become stable at other values
/// (docs/profiler.md).
struct WorkerProfile {
  static constexpr const char* type = "worker-profile";
  int generation = 0;   ///< generation of the program
  std::string profile;  ///< one rank's profile, in hexadecimal digits
};

/// The program has reported with how many workers it can run.
struct WorkerSizes {
  static constexpr const char* type = "worker-sizes";
  std::vector<int> workers;  ///< rising; empty: any
  std::string why;           ///< why it cannot run with other numbers, for people; empty: unknown
};

/// Each worker of the program trains by itself: it is a launcher whose child process has a rank of
/// its own, or it was started without its rank.
struct WorkerLaunches {
  static constexpr const char* type = "worker-launches";
  int generation = 0;  ///< generation of the program, as WorkerStart gave it
  std::string what;    ///< the process and its ranks, for people
  bool no_rank = false;
};

/// Largest number of steps in a message.
inline constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

/// Progress of the program, if swellrun can see its steps; sent at most once a second.
struct WorkerSteps {
  static constexpr const char* type = "worker-steps";
  int generation = 0;      ///< generation of the program, as WorkerStart gave it
  std::int64_t steps = 0;  ///< steps that it has made; rising
  double age_s = 0;        ///< seconds since its last step; 0: not known
  std::int64_t total = 0;  ///< steps at the training's end, as the program says; 0: not known
};

/// The program has ended.
struct WorkerExit {
  static constexpr const char* type = "worker-exit";
  int generation = 0;  ///< generation of the program, as WorkerStart gave it
  int exit_code = 0;   ///< valid if signal is 0
  int signal = 0;
};

// ---- agent to worker

/// Starts the program with these variables: every worker of the generation is connected.
struct WorkerStart {
  static constexpr const char* type = "worker-start";
  int generation = 0;      ///< a live switch starts the next one's program beside the running one
  int restart_signal = 0;  ///< held back until the program handles it; 0: none
  std::string key;         ///< the job's key for its keepers; empty: no live mode
  std::string ports;       ///< live mode: network ports near its GPUs: "mlx5_0:1,mlx5_3:1"
  std::vector<std::pair<std::string, std::string>> environment;
  bool none_is_new =
      false;  ///< each worker of this generation already runs a program of the generation before
};

/// Sends this signal to the program.
struct WorkerSignal {
  static constexpr const char* type = "worker-signal";
  static constexpr int kStay = 0;  ///< no signal: withdraws the request to leave
  int generation = -1;             ///< of the program to signal; -1: all that run
  int signal = 0;
};

using Message = std::variant<Hello, GrowDone, Released, Status, Profile, Switched, Bye, Welcome,
                             Refused, Grow, Shrink, Replan, Requeue, Ask, Answer, WorkerHello,
                             WorkerNotice, WorkerListens, WorkerRuntime, WorkerProfile, WorkerSizes,
                             WorkerLaunches, WorkerSteps, WorkerExit, WorkerStart, WorkerSignal>;

/// Returns the JSON form of a message.
Json to_json(const Message& message);

/// Reads one message. The error names the type, the member, what was found and what is allowed.
/// Safe on hostile input: sizes and ranges are bounded.
Result<Message> message_from(const Json& json);

}  // namespace swell::control
