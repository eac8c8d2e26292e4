// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "control/messages.h"
#include "core/json.h"
#include "launcher/rank_assignment.h"

/// Actions that the generation machine wants done; the agent does them, and answers some of them by
/// an event (event.h).
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
  bool none_is_new = false;  ///< the generation before trains on all of them
  bool live = false;         ///< the programs find Swell's runtime
};

struct SignalWorkers {
  std::vector<WorkerId> workers;
  int signal = 0;
  int generation = -1;  ///< to that generation's programs alone; -1: to all that run there
};

/// Let the programs of these ranks begin with new state, once they wait for it. Answer: Begun.
struct BeginLive {
  int generation = 0;
  std::vector<WorkerId> ranks;
  bool from_snapshot = true;  ///< where there is one
};

/// Move the state of the ranks `from` to the programs of `generation` on the ranks `to`, both in
/// order, while the old ones train, and let these leave. Answer: Switched.
struct SwitchLive {
  int generation = 0;
  std::vector<WorkerId> from, to;
  double leave_within_s = 0;  ///< for those that are not in `to`; 0: at any time
};

/// Have the programs of `generation` on these workers leave, all at one step, and agree on it
/// within that time. Answer: Stopped.
struct StopLive {
  int generation = 0;
  std::vector<WorkerId> workers;
  double within_s = 0;
};

/// Call off what BeginLive, SwitchLive or StopLive began. It is answered all the same.
struct CallOffLive {};

/// Create these companions. Answer: Allocated.
struct Allocate {
  control::Grow grow;
};

/// Let the companion's shims go, and cancel it at once. Answer: Released.
struct Release {
  JobId job = 0;
};

/// To the controller.
struct Tell {
  control::Message message;
};

/// One line for the user.
struct Say {
  std::string line;
};

/// One line of --swell-events.
struct Note {
  std::string event;
  Json details = Json::object();
};

/// Let the job's own shims go, wait for what still runs, end with this code.
struct Finish {
  int code = 0;
  bool for_requeue = false;  ///< the workers have left before the job's own end
};

using Any = std::variant<StartStep, StartWorkers, SignalWorkers, Allocate, Release, Tell, Say, Note,
                         BeginLive, SwitchLive, StopLive, CallOffLive, Finish>;

}  // namespace swell::launcher::action
