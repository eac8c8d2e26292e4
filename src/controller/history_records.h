// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <variant>
#include <vector>

#include "control/messages.h"

/// Records of the history, as the controller hands them over. Texts that hold JSON are kept as they
/// are: records go to another thread, where Json values may not be shared.
namespace swell::controller::history {

using control::JobId;

/// Events with which a job's GPUs change.
inline constexpr std::array kGpuChanges = {"companion-started", "companion-ended", "companion-lost",
                                           "companion-preempted", "reclaim"};

/// An elastic job has started, or was found running.
struct Job {
  JobId job = 0;
  std::int64_t started = 0;  ///< tells a requeued job from its former run; seconds since 1970
  uid_t uid = 0;
  std::string spec;  ///< --elastic, as recorded
  int basic_gpus = 0;
};

/// One thing that happened to a job that was handed over as Job before.
struct Event {
  JobId job = 0;
  std::string kind;  ///< as in EventLog: "grant", "reclaim", ...
  JobId companion = 0;
  std::string node;
  int gpus = 0;
  std::string reason;
  std::string details;  ///< a JSON object; empty: nothing more
  /// Key of an event that happens once in a run and is seen again after a restart; empty: none.
  std::string once;
};

/// Measurements of a job's program, and the values that follow from them.
struct Profile {
  JobId job = 0;
  int generation = 0, gpus = 0;
  double samples_per_s = 0;
  double predicted = 0, measured = 0;  ///< speed-up over its own GPUs alone; 0: not known
  std::string profile, coefficients;   ///< JSON
};

/// Training stood still while the job changed its GPUs or its plan.
struct Pause {
  JobId job = 0;
  bool is_live = false;
  int generation = 0, workers = 0;  ///< from then on
  double stopped_s = 0;
  /// Live mode: the time before (`prepare_s`, `wait_s`), in which training went on, and the parts.
  double prepare_s = 0, wait_s = 0, quiesce_s = 0, move_s = 0, commit_s = 0;
  std::int64_t bytes_moved = 0;
  std::string bytes_by_path;  ///< JSON
};

/// Best plan found for each number of GPUs that the job could have.
struct Scale {
  JobId job = 0;
  std::string table;  ///< JSON of a planner::NamedTable
};

using Record = std::variant<Job, Event, Profile, Pause, Scale>;

/// A record with the time at which it happened, in seconds since 1970.
struct Stamped {
  double time = 0;
  Record record;
};

}  // namespace swell::controller::history
