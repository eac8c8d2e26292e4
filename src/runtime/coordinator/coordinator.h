// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "core/cluster/cluster.h"
#include "runtime/coordinator/switch_machine.h"
#include "runtime/state/snapshots.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// A shim as the coordinator reaches it: by its Unix socket if the path is set, otherwise by TCP.
struct Shim {
  std::string unix_socket, tcp;
  cluster::GpuRef gpu;
  /// Its allocation may end at any time, and those of other lent shims with it.
  bool is_lent = false;
};

/// Result of a switch.
struct SwitchReport {
  bool committed = false;
  /// The phase of the first failure.
  SwitchMachine::Phase failed_in = SwitchMachine::Phase::committed;
  std::string why;                     ///< empty: nothing failed
  ErrorCode code = ErrorCode::failed;  ///< code of `why`; cancelled: call_off() ended it
  bool is_silent = false;              ///< a program did not stop at a step in time
  /// The ranks that leave were released before the commit; if the switch failed, the old generation
  /// is lost.
  bool has_let_go = false;
  /// The switch was made in chunks and the first chunk had begun. If the switch failed, the old
  /// generation is lost, and a snapshot of the step exists.
  bool is_old_gone = false;
  /// Nothing has moved because a GPU had too little free memory for the state of the new plan, even
  /// in chunks.
  bool lacks_room = false;
  /// Shims that did not answer the commit; it is not known whether their programs train.
  std::vector<Shim> lost;
  std::uint64_t generation = 0, step = 0;
  /// Training continues while a switch is prepared (`prepare_s`), and until the first program
  /// reaches the agreed step (`wait_s`); then it stands still until the commit.
  double prepare_s = 0, wait_s = 0, quiesce_s = 0, secure_s = 0, move_s = 0, commit_s = 0;
  double stopped_s() const noexcept { return quiesce_s + secure_s + move_s + commit_s; }
  /// The maximum over all shims; measured if the switch is in chunks.
  std::uint64_t max_extra_bytes = 0;
  std::uint32_t chunks = 0;      ///< 0: everything was moved at once
  std::vector<PathBytes> paths;  ///< sums over all shims
  std::set<std::string> notes;   ///< why a path was slower than requested
  /// Returns one line for the log: "generation 2 at step 40: ...".
  std::string summary() const;
};

/// Result of asking all ranks to stop or to write a checkpoint at a boundary.
struct RequestReport {
  std::uint64_t step = 0;  ///< agreed by all ranks but those in `untold`; 0: no agreement
  /// Shims that did not get the request: the program or the shim is gone or silent.
  std::vector<Shim> untold;
  /// Why the first of these shims did not get it, or why there is no agreement; empty: all agreed.
  std::string why;
  ErrorCode code = ErrorCode::failed;  ///< code of `why`; cancelled: call_off() ended it
};

/// Drives the shims of a job through its generations. Blocking; one thread at a time.
class Coordinator {
 public:
  struct Options {
    std::string key;  ///< the job's key, for shims that are reached by TCP
    Verify verify = Verify::network;
    /// Memory that any shim may take beside its state. If a switch needs more, it is made in
    /// chunks, provided that the programs take snapshots: docs/runtime.md.
    std::uint64_t max_extra_bytes = std::uint64_t{2} << 30;
    std::chrono::milliseconds prepare_limit{60'000}, quiesce_limit{60'000}, move_limit{600'000},
        commit_limit{30'000};
    /// The stop is requested this many steps ahead of the farthest rank; more if a rank hears of it
    /// too late.
    std::uint64_t step_lead = 2;
    /// Ranks that are not in the new plan must be gone this long after the order; 0: there is no
    /// limit. Their unique state moves first. They are released before the commit if the rest takes
    /// too long; if their unique state takes too long, the switch is cancelled.
    std::chrono::milliseconds leave_limit{0};
    /// Shims of the job's own GPUs that a plan leaves out; they may keep snapshots of other ranks.
    std::vector<Shim> waiting;
    std::function<void(SwitchMachine::Phase)>
        on_phase;                     ///< called when each phase begins; may be empty
    std::function<void()> on_let_go;  ///< called before the leaving ranks are told; may be empty
  };
  Coordinator(cluster::Cluster cluster, Options options);

  /// Waits for a program at each shim, in the order of ranks, and begins the job's first generation
  /// with new state. On an error the waiting programs are told to exit.
  Result<void> begin(const std::vector<Shim>& ranks, std::uint64_t generation);
  /// Returns whether all programs that train there have said that they can keep their processes, at
  /// least in a switch that starts no other program.
  bool stay(const std::vector<Shim>& ranks) const;

  /// Switches from the ranks `from` to the ranks `to`, both in order; a shim may be in both. Waits
  /// within prepare_limit for programs of the new generation that are still starting, while the old
  /// ones train. Returns an error if nothing was asked of any shim.
  Result<SwitchReport> switch_plan(const std::vector<Shim>& from, const std::vector<Shim>& to,
                                   std::uint64_t generation);

  /// Begins a generation with the newest snapshot of which `holders` together have every rank's
  /// part: the programs of `to` adopt it. No program of an earlier generation may train. Returns an
  /// error if there is no such snapshot; in that case it has asked the shims for nothing.
  Result<SwitchReport> recover(const std::vector<Shim>& holders, const std::vector<Shim>& to,
                               std::uint64_t generation);

  /// Has the programs of `ranks` follow the request (kStopRequest or kCheckpointRequest) at one
  /// step: the nearest one that no rank has passed. No rank follows it before all have agreed; a
  /// rank that is gone or silent delays the others by at most `limit`. If they do not agree within
  /// `limit`, each rank follows it at its own next boundary; if the request is cancelled, none
  /// does.
  RequestReport request(std::uint64_t request, const std::vector<Shim>& ranks,
                        std::chrono::milliseconds limit);

  /// Cancels what another thread waits for in begin(), request() or switch_plan(), and all later
  /// requests: aborts the switch on all shims unless its commit has begun. Returns true if no shim
  /// will commit, and false if all are told to commit and the switch holds.
  bool call_off() noexcept;

  /// Ends a switch whose coordinator died: commits it if any shim has committed, otherwise aborts
  /// it. Returns the generation that holds.
  Result<std::uint64_t> settle(const std::vector<Shim>& shims);

 private:
  class Run;         // coordinator_switch.cc
  class Requesting;  // coordinator_stop.cc
  /// Time for a shim, which keeps the time limit itself, to report that the limit has passed.
  static constexpr auto kAnswerTime = std::chrono::seconds(5);
  static constexpr auto kConnectTime = std::chrono::seconds(10);
  Result<Channel> reach(const Shim& shim, Deadline deadline = within(kConnectTime)) const;
  Result<Message> ask_unless_off(Channel& channel, Op op, std::string_view body,
                                 Deadline deadline) const;
  Result<Message> answer_unless_off(Channel& channel, Deadline deadline) const;
  Result<void> begin_all(const std::vector<Shim>& ranks, std::uint64_t generation);
  void abort_all(const std::vector<Shim>& shims, bool is_old_gone = false) const;
  Result<SwitchReport> switch_from(const std::vector<Shim>& from, const Consistent* snapshot,
                                   const std::vector<Shim>& to, std::uint64_t generation);
  void guard_all(const std::vector<Shim>& ranks, std::uint64_t generation) const;
  bool begin_commit() noexcept;
  cluster::Cluster cluster_;
  Options options_;
  /// Which came first: call_off() or the commit.
  enum class Verdict { open, off, committing };
  std::atomic<Verdict> verdict_ = Verdict::open;
  Descriptor off_;  ///< an eventfd: readable once call_off() was called
};

}  // namespace swell::runtime
