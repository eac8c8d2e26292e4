// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/descriptor.h"
#include "runtime/messages.h"
#include "runtime/snapshots.h"
#include "runtime/switch_machine.h"

namespace swell::runtime {

/// A shim as the coordinator reaches it: by Unix socket where it has one's path, else by TCP.
struct Shim {
  std::string unix_socket, tcp;
  cluster::GpuRef gpu;
  bool is_lent = false;  ///< it may go at any time, and others with it
};

/// How a switch went.
struct SwitchReport {
  bool committed = false;
  /// The phase of the first failure.
  SwitchMachine::Phase failed_in = SwitchMachine::Phase::committed;
  std::string why;                     ///< empty: nothing failed
  ErrorCode code = ErrorCode::failed;  ///< of `why`; cancelled: call_off() ended it
  bool is_silent = false;              ///< a program did not stop at a step in time
  /// The ranks that leave were let go before the commit: where it failed, the old epoch is gone.
  bool has_let_go = false;
  /// In chunks, and the first was begun: where it failed, the old epoch is gone, too, and a
  /// snapshot of the step is there.
  bool is_old_gone = false;
  /// Nothing has moved since a GPU has no room for state of the new plan, in chunks either.
  bool lacks_room = false;
  /// Shims that did not answer the commit: whether their programs train is not known.
  std::vector<Shim> lost;
  std::uint64_t epoch = 0, step = 0;
  /// Training goes on while a switch is prepared, and until the first program has come to the step
  /// that was agreed on (`wait_s`); then it stands still, until the commit.
  double prepare_s = 0, wait_s = 0, quiesce_s = 0, secure_s = 0, move_s = 0, commit_s = 0;
  double stopped_s() const noexcept { return quiesce_s + secure_s + move_s + commit_s; }
  /// The largest of any shim; in chunks: as measured.
  std::uint64_t max_extra_bytes = 0;
  std::uint32_t chunks = 0;      ///< 0: all was moved at once
  std::vector<PathBytes> paths;  ///< over all shims
  std::set<std::string> notes;   ///< why a way was slower than was asked for
  /// One line for the log: "epoch 2 at step 40: ...".
  std::string summary() const;
};

/// How ranks were told what they are to do at a boundary.
struct WishReport {
  std::uint64_t step = 0;    ///< that all agreed on who are not in `untold`; 0: there is none
  std::vector<Shim> untold;  ///< who did not hear it: the program, or its shim, is gone or silent
  std::string why;           ///< the first of these, or why there is no step; empty: all agreed
  ErrorCode code = ErrorCode::failed;  ///< of `why`; cancelled: call_off() ended it
};

/// Drives the shims of a job through its epochs. Blocking; one thread at a time.
class Coordinator {
 public:
  struct Options {
    std::string key;  ///< the job's; for shims that are reached by TCP
    Verify verify = Verify::network;
    /// Memory any shim may take beside its state. Where that is too little, the switch is made in
    /// chunks, if the programs take snapshots: docs/runtime.md.
    std::uint64_t max_extra_bytes = std::uint64_t{2} << 30;
    std::chrono::milliseconds prepare_limit{60'000}, quiesce_limit{60'000}, move_limit{600'000},
        commit_limit{30'000};
    /// The stop is asked for this many steps ahead of the farthest rank; more, where one hears of
    /// it too late.
    std::uint64_t step_lead = 2;
    /// Ranks that are not in the new plan must be gone so soon after the order; 0: at any time.
    /// Their unique state moves first, and they are let go before the commit where the rest takes
    /// too long; where that takes too long, the switch is called off.
    std::chrono::milliseconds leave_limit{0};
    /// Shims of the job's own GPUs that may keep snapshots of others: those that a plan leaves out.
    std::vector<Shim> waiting;
    std::function<void(SwitchMachine::Phase)>
        on_phase;                     ///< told as each phase begins; may be empty
    std::function<void()> on_let_go;  ///< told before the leavers hear of it; may be empty
  };
  Coordinator(cluster::Cluster cluster, Options options);

  /// Waits for a program at each shim, in the order of ranks, and begins the job's first epoch,
  /// with new state. On an error the programs that wait are told to leave.
  Result<void> begin(const std::vector<Shim>& ranks, std::uint64_t epoch);
  /// Whether the programs that train there have all said that they can keep their processes, at
  /// least in a switch that starts no other.
  bool stay(const std::vector<Shim>& ranks) const;

  /// Switches from the ranks `from` to the ranks `to`, both in order; a shim may be in both.
  /// Programs of the new epoch may still be starting: they are waited for within prepare_limit
  /// while the old ones train. An error: nothing was asked.
  Result<SwitchReport> switch_plan(const std::vector<Shim>& from, const std::vector<Shim>& to,
                                   std::uint64_t epoch);

  /// Begins an epoch with the newest snapshot of which `holders` have every rank's part, wherever
  /// these are by now: the programs of `to` adopt it. No program of an earlier epoch may train. An
  /// error: there is no such snapshot, and nothing was asked.
  Result<SwitchReport> recover(const std::vector<Shim>& holders, const std::vector<Shim>& to,
                               std::uint64_t epoch);

  /// Has the programs of `ranks` do what is wished, kStopWish or kCheckpointWish, at one step: the
  /// nearest that none has passed. Nobody does it before all have agreed; a rank that is gone or
  /// silent holds the others for no longer than `limit`. Where they do not agree within it, each
  /// does it at its own next boundary; where that is called off, none does.
  WishReport wish(std::uint64_t wish, const std::vector<Shim>& ranks,
                  std::chrono::milliseconds limit);

  /// Ends what another thread waits for in begin(), wish() or switch_plan(), and all that is asked
  /// later: an abort of all, unless the commit has begun. Returns what is certain from then on:
  /// true, no shim commits; false, all are told to, and the switch holds.
  bool call_off() noexcept;

  /// Ends a switch whose coordinator died: commits it where any shim has, else aborts it. Returns
  /// the epoch that holds.
  Result<std::uint64_t> settle(const std::vector<Shim>& shims);

 private:
  class Run;      // coordinator_switch.cc
  class Wishing;  // coordinator_stop.cc
  /// For a shim that keeps a time limit by itself to say that it has passed.
  static constexpr auto kAnswerTime = std::chrono::seconds(5);
  static constexpr auto kConnectTime = std::chrono::seconds(10);
  Result<Channel> reach(const Shim& shim, Deadline deadline = within(kConnectTime)) const;
  Result<Message> ask_unless_off(Channel& channel, Op op, std::string_view body,
                                 Deadline deadline) const;
  Result<Message> answer_unless_off(Channel& channel, Deadline deadline) const;
  Result<void> begin_all(const std::vector<Shim>& ranks, std::uint64_t epoch);
  void abort_all(const std::vector<Shim>& shims, bool is_old_gone = false) const;
  Result<SwitchReport> switch_from(const std::vector<Shim>& from, const Consistent* snapshot,
                                   const std::vector<Shim>& to, std::uint64_t epoch);
  void guard_all(const std::vector<Shim>& ranks, std::uint64_t epoch) const;
  bool begin_commit() noexcept;
  cluster::Cluster cluster_;
  Options options_;
  /// Whether call_off() or the commit came first.
  enum class Verdict { open, off, committing };
  std::atomic<Verdict> verdict_ = Verdict::open;
  Descriptor off_;  ///< an eventfd: readable once it is called off
};

}  // namespace swell::runtime
