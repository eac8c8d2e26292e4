// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "control/messages.h"
#include "core/json.h"
#include "launcher/rank_assignment.h"

/// Actions that the generation machine orders. The agent carries them out, and answers some of them
/// with an event (event.h).
namespace swell::launcher::action {

/// Start the shims of an allocation: the job's own step, or a companion's.
struct StartStep {
  JobId job = 0;
  std::vector<WorkerNode> nodes;
};

/// Start the program on every worker of the generation, each with its own variables.
struct StartWorkers {
  int generation = 0;
  std::vector<std::pair<WorkerId, Environment>> workers;
  bool none_is_new = false;  ///< the previous generation already trains on all of them
  bool live = false;         ///< the programs are given Swell's runtime
};

struct SignalWorkers {
  std::vector<WorkerId> workers;
  int signal = 0;
  int generation = -1;  ///< signals only its programs; -1: all programs there
};

/// Let the waiting programs of these ranks begin with a snapshot or new state. Answer: Begun.
struct BeginLive {
  int generation = 0;
  std::vector<WorkerId> ranks;
  bool from_snapshot = true;  ///< from the newest snapshot, if there is one
};

/// Move the state of the ranks `from` to the programs of `generation` on the ranks `to`, both in
/// rank order, while the old programs train; then let these leave. Answer: Switched.
struct SwitchLive {
  int generation = 0;
  std::vector<WorkerId> from, to;
  double leave_within_s = 0;  ///< limit for workers that are not in `to`; 0: none
};

/// Have the programs of `generation` on these workers leave, all at one step, on which they must
/// agree within `within_s`. Answer: Stopped.
struct StopLive {
  int generation = 0;
  std::vector<WorkerId> workers;
  double within_s = 0;
};

/// Cancel what BeginLive, SwitchLive or StopLive began; its answer still comes.
struct CallOffLive {};

/// Create these companions. Answer: Allocated.
struct Allocate {
  control::Grow grow;
};

/// Disconnect the companion's shims; cancel it after its step's end, or in 1 s. Answer: Released.
struct Release {
  JobId job = 0;
};

/// Send the message to the controller.
struct Tell {
  control::Message message;
};

/// Print one line for the user.
struct Say {
  std::string line;
};

/// Write one line of --swell-events.
struct Note {
  std::string event;
  Json details = Json::object();
};

/// Disconnect the job's own shims, wait for the processes that still run, and exit with `code`.
struct Finish {
  int code = 0;
  bool for_requeue = false;  ///< the workers left before the job's time limit
};

using Any = std::variant<StartStep, StartWorkers, SignalWorkers, Allocate, Release, Tell, Say, Note,
                         BeginLive, SwitchLive, StopLive, CallOffLive, Finish>;

}  // namespace swell::launcher::action
