// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "control/messages.h"
#include "launcher/exit.h"
#include "launcher/rank_assignment.h"
#include "launcher/reconfiguration.h"

namespace swell::launcher {

/// Result of one offer: a companion, or salloc's reason for refusing it.
struct Granted {
  std::string nonce;
  JobId job = 0;  ///< 0: refused
  std::string reason;
  std::vector<WorkerNode> nodes;  ///< without ids
};

/// Events that the agent reports to the generation machine, which answers with actions (action.h).
/// The controller's orders are passed on as events: Grow, Shrink, Replan and Requeue of
/// control/messages.h.
namespace event {

// Workers.

/// The worker's shim is connected and ready to start a program.
struct Hello {
  WorkerId worker;
  std::string host;
  int port = 0;
  JobId step = 0;
  /// Why its GPUs take only one program at a time; if set, all later resizes are restarts.
  std::string one_program = {};
};
/// A program of `generation` has ended; nullopt: of the generation that trains.
struct Exited {
  WorkerId worker;
  Exit exit;
  std::optional<int> generation = std::nullopt;
};
/// The program of the worker handles the restart signal.
struct Listens {
  WorkerId worker;
  std::optional<int> generation = std::nullopt;  ///< as in Exited
};
/// The program can run with these numbers of workers, rising, and with no others.
struct CanRunWith {
  std::vector<int> workers;  ///< empty: with any
  std::string why = {};      ///< not empty: why the program does not take part in growths
};
/// Each worker is a training by itself.
struct TrainsAlone {
  WorkerId worker;
  /// The program that the worker's program, a launcher, has started with a rank of its own; with
  /// `no_rank`, the program that was started without its rank.
  std::string what;
  bool no_rank = false;
};
/// A worker of `generation` is alive, and has made `steps` steps; 0: not known.
struct MadeSteps {
  int generation = 0;
  std::uint64_t steps = 0;
};
/// Some worker has written output.
struct Wrote {};
/// The whole job was suspended until now.
struct StoodStill {};
/// The connection of a worker has closed.
struct Lost {
  WorkerId worker;
};
/// Slurm has sent the worker's step a signal.
struct Notice {
  WorkerId worker;
  int signal = 0;
};

// Steps and companions.

struct StepEnded {
  JobId job = 0;
  Exit exit;
  std::string misfit = {};  ///< not empty: why the step that srun made cannot be used
};
struct Allocated {
  std::vector<Granted> results;
};
struct Released {
  JobId companion = 0;
};
/// No program can be started on further lent GPUs until the run ends; it keeps those that it has.
struct GrowsNoMore {
  std::string why;
};

// Live mode.

struct Begun {
  int generation = 0;
  std::string why = {};             ///< not empty: why it has not begun
  std::uint64_t snapshot_step = 0;  ///< the snapshot that it resumes from; 0: new state
  bool stays = true;  ///< its programs may keep their processes in a switch that gives GPUs back
};
struct Switching {
  int generation = 0;
  SwitchPhase phase = SwitchPhase::prepare;
};
/// The workers that leave with the switch may leave now, before it is committed.
struct LetGo {
  int generation = 0;
};
struct Switched {
  int generation = 0;
  SwitchOutcome outcome;
};
/// All workers except `untold` leave at `step`; if it is 0, each leaves at its next step boundary.
struct Stopped {
  int generation = 0;
  std::uint64_t step = 0;
  std::vector<WorkerId> untold;
};

// The job and its user.

/// When the job's time limit ends, by Slurm's latest answer.
struct JobEnds {
  std::optional<double> at;  ///< none: unlimited
};
/// The user has sent swellrun a signal.
struct Signalled {
  int signal = 0;
};

using Any = std::variant<Hello, Exited, Listens, CanRunWith, TrainsAlone, MadeSteps, Wrote,
                         StoodStill, Lost, Notice, StepEnded, Allocated, Released, GrowsNoMore,
                         control::Grow, control::Shrink, control::Replan, control::Requeue, Begun,
                         Switching, LetGo, Switched, Stopped, JobEnds, Signalled>;

}  // namespace event

}  // namespace swell::launcher
