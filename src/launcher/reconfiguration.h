// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "launcher/rank_assignment.h"
#include "runtime/coordinator/switch_machine.h"

namespace swell::launcher {

/// Why a run goes from one generation to the next.
enum class Purpose {
  grow,          ///< to GPUs that were lent
  give_back,     ///< without GPUs that go back
  replan,        ///< to another plan over the same GPUs
  user_restart,  ///< the user sent the restart signal
  retry,         ///< the program is started again after a failure
  hang,          ///< the program makes no steps any more
  requeue,       ///< Slurm is to requeue the job; it starts again if that does not happen
};

/// How the workers are changed.
enum class Strategy {
  none,     ///< not now
  live,     ///< the next programs start beside the running ones and take their state over
  restart,  ///< the workers leave, and the next programs start after that
};

/// A change from one generation to the next, by either strategy.
struct Reconfiguration {
  int from = 0;
  int to = 0;
  Purpose purpose = Purpose::give_back;
  double since = 0;
  double deadline = 0;  ///< live: when it is called off; restart: for workers to leave
};

/// The phase of a live switch, which the coordinator goes through in this order.
using SwitchPhase = runtime::SwitchMachine::Phase;

/// How a live switch went.
struct SwitchOutcome {
  bool committed = false;
  std::optional<SwitchPhase> phase;    ///< of the first failure; none: not known
  bool is_silent = false;              ///< the old programs did not stop at a step
  std::string why;                     ///< empty: nothing failed
  ErrorCode code = ErrorCode::failed;  ///< of `why`; cancelled: CallOffLive ended it
  bool lacks_room = false;             ///< a GPU had too little memory, and nothing has moved
  std::string brief;                   ///< for `swell jobs`, in few words
  std::string summary;                 ///< one line for people
  std::vector<WorkerId> lost;          ///< workers whose shims did not answer the commit
  double stopped_s = 0;                ///< from the order to stop to the new programs' first step
  Json details = Json::object();       ///< for --swell-events: bytes by path, times

  /// Returns the name of `phase`; empty: it is not known.
  const char* phase_text() const noexcept;
  /// Makes the texts say that the switch was called off for `reason`.
  void called_off_for(const std::string& reason);
};

/// Why a live switch was called off.
enum class CallOffCause {
  worker_ended,    ///< a worker of the running generation
  next_ended,      ///< a program of the next generation
  gpus_reclaimed,  ///< it would use GPUs that go back
  too_slow,
  growth_limit,  ///< it took longer than the owner allows for a growth
};
struct CalledOff {
  CallOffCause cause;
  std::string why;  ///< for people

  /// Returns whether the next growth would fail for this, too.
  bool blames_growth() const noexcept {
    return cause != CallOffCause::worker_ended && cause != CallOffCause::gpus_reclaimed;
  }
};

/// The state that a live switch has left behind.
enum class SwitchEnd {
  committed,       ///< the next generation trains
  lent_left,       ///< workers had left before it failed: there is no way back
  state_released,  ///< it failed between its chunks: the old generation's state is gone
  silent,          ///< the old programs stopped answering
  lacks_room,      ///< the next programs do not fit beside the old ones: a restart may help
  trains_on,       ///< the old generation trains on
};

/// The phases of one live switch, as the coordinator reports them. Pure.
class SwitchProgress {
 public:
  /// Notes that `phase` has begun. Returns whether that is news: a commit is news only once.
  bool enter(double now, SwitchPhase phase);
  /// Returns whether the old programs are being stopped, or have been.
  bool is_prepared() const noexcept { return prepared_at_.has_value(); }
  std::optional<double> prepared_at() const noexcept { return prepared_at_; }
  /// Returns whether all shims are told to commit: from then on nothing calls it off.
  bool is_committing() const noexcept { return phase_ >= SwitchPhase::commit; }

  /// Notes that the leaving workers were told to leave: the old generation cannot be resumed.
  /// Returns false if they had been told before.
  bool let_go() noexcept { return !std::exchange(has_let_go_, true); }
  bool has_let_go() const noexcept { return has_let_go_; }

  /// Notes that the switch would use GPUs that must go back.
  void outdate() noexcept { is_outdated_ = true; }
  bool is_outdated() const noexcept { return is_outdated_; }

  /// Notes that the switch was called off. Returns false if it was before; the first cause holds.
  bool call_off(CallOffCause cause, std::string why);
  const std::optional<CalledOff>& called_off() const noexcept { return called_off_; }

  /// Returns the state that the switch leaves. `all_listen`: its programs could be restarted.
  SwitchEnd end(const SwitchOutcome& outcome, Purpose purpose, bool all_listen) const;

 private:
  SwitchPhase phase_ = SwitchPhase::prepare;
  std::optional<double> prepared_at_;
  bool in_chunks_ = false;  ///< the state was secured, so that chunks can replace the old one
  bool has_let_go_ = false;
  bool is_outdated_ = false;
  std::optional<CalledOff> called_off_;
};

}  // namespace swell::launcher
