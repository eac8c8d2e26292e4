// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "runtime/chunks.h"
#include "runtime/door.h"
#include "runtime/intake.h"
#include "runtime/messages.h"
#include "runtime/migration.h"
#include "runtime/own_share.h"
#include "runtime/placement.h"
#include "runtime/snapshots.h"
#include "runtime/store.h"
#include "runtime/ucx_link.h"

namespace swell::runtime {

/// Keeps one rank's training state over the epochs of its programs: owns the arena, tells programs
/// where their tensors stand, fetches what the next epoch needs, and commits or aborts it. Lives in
/// the shim. Its threads serve programs and other shims of this user over a Unix socket, and other
/// nodes' over TCP.
///
/// Guarantees: until the commit, or the first chunk of a switch in chunks, what the committed
/// epoch holds is neither freed nor written;
/// an abort, the death of a program that waits in adopt, or of a coordinator before all has moved,
/// leaves it as it was.
class Keeper {
 public:
  struct Options {
    std::string unix_socket;  ///< its folder is made with mode 0700
    std::string
        tcp_host;     ///< a numeric address to listen on; empty: no connections from other nodes
    std::string key;  ///< the job's, at least 16 bytes; needed with tcp_host
    std::string
        host;  ///< of which host it is; empty: by the boot of this one. Equal hosts share memory
    std::string processes;          ///< its PID namespace; empty: that of this process
    std::uint64_t arena_bytes = 0;  ///< address space: memory is taken as it is written
    /// Bytes of a slab: GPU memory that several tensors share.
    std::uint64_t slab_bytes = Slabs::kSlabBytes;
    /// Through which devices of UCX state comes and goes beside TCP; none: it is not to be used.
    std::optional<Ucx::Options> ucx;
    /// How programs move what is on GPUs by NCCL; none: they do not.
    std::optional<NcclOptions> nccl;
    /// Told each profile that the program reports, by one of the keeper's threads; may be empty.
    std::function<void(std::uint64_t epoch, std::string profile)> on_profile;
    /// Told each time when a program takes an epoch over; may be empty, must not ask this keeper.
    std::function<void(std::uint64_t epoch, pid_t program)> on_adopted;
    enum class Hold {
      verified,  ///< a move has compared the checksum of a first block, and has others to fetch
      rest,      ///< a move has all that no rank has that stays, and has others to fetch
      chunk,     ///< a chunk has come, and memory that no shim needs any more has been released
      freeing,   ///< a commit was answered, and the memory of the epoch before is to go back
      keeping,   ///< another rank's snapshot is to be fetched
    };
    /// Called again and again: one of these waits while it returns true, or until cancelled. For
    /// tests; may be empty.
    std::function<bool(Hold)> holds;
  };
  /// Listens, and begins to serve. The error names the missing resource.
  static Result<std::unique_ptr<Keeper>> start(Options options);
  /// Ends all connections and frees the arena; programs that still map it keep their memory.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Has the program that trains prepare for `epoch` in its own process: swell_step() says so, and
  /// these are its variables then. False: none trains here that can; a new one has to be started.
  /// `none_is_new`: a program trains on every worker of the epoch already.
  bool offer_next(std::uint64_t epoch, Variables variables, bool none_is_new = false);
  /// The epoch that was offered last does not come: as if its program had died.
  void withdraw_next();

  /// The step of the state that is here; 0: it is new, or there is none.
  std::uint64_t step() const { return status().step; }
  /// Seconds since the program that trains passed the boundary of that step; 0: not known.
  double step_age_s() const;
  const std::string& unix_socket() const noexcept { return options_.unix_socket; }
  /// "address:port"; empty without TCP.
  const std::string& tcp_address() const noexcept { return tcp_; }
  /// Memory that the arena's pages take, once what a commit gave up has gone back.
  std::uint64_t used_bytes() const;

 private:
  /// One connection and its thread.
  struct Peer {
    Channel channel;
    std::thread thread;
    bool is_unix = false, is_done = false;
    pid_t pid = 0;
    std::vector<Entry> entries;        ///< as declared
    std::shared_ptr<DeviceHand> hand;  ///< where its program has tensors on a GPU
    std::vector<OwnShare> own;         ///< how others map its own memory there, in any order
    std::unique_ptr<UcxLink> link;     ///< after `channel`: for what it reads
    std::uint64_t pair = 0;  ///< NCCL's, of the program here and one there; 0: it has no number yet
    bool has_declared = false, is_waiting = false;
    bool is_quiesced = false, takes_snapshots = false;
    bool leaves = false;      ///< it has been told to stop
    Stays stays = Stays::no;  ///< whether its process can train with another plan
    std::uint64_t next = 0;   ///< the epoch that was offered to that process; 0: a new one's peer
    std::optional<Error> declined;  ///< why a new program cannot train here
    std::uint64_t step = 0;
  };
  /// The epoch that a program that stays is to prepare for.
  struct Next {
    std::uint64_t epoch = 0;
    Variables variables;
    std::optional<Error> declined = {};  ///< why it will not
  };
  /// A step at which the program is to stand, without a switch.
  struct Agreed {
    std::uint64_t step = 0, wish = 0;  ///< 0: it is not decided yet what it does there
    Peer* coordinator = nullptr;       ///< until that is decided
  };
  struct Staged {
    Prepare prepare;
    Placement placement;
    std::optional<Intake> intake;  ///< none: the ways are not open yet
    std::uint64_t digest = 0;
    Peer* program = nullptr;  ///< that waits in adopt; nullptr: this shim is not in the new plan
    Peer* coordinator = nullptr;
    bool is_busy = false, is_moved = false, is_over = false;
    Progress progress;
    // In chunks.
    std::unique_ptr<Staged> before;            ///< what was prepared to be moved at once
    std::uint32_t chunks = 0, next_chunk = 0;  ///< 0: all is moved at once
    std::vector<Release> releases;
    bool is_secured = false;
    bool is_old_gone = false;  ///< the old epoch cannot be gone back to
    /// Bytes that the arena took before the first chunk, that the new state has more there than the
    /// old one, and of the larger of both on the GPU.
    std::uint64_t used_bytes = 0, growth_bytes = 0, larger_on_gpu = 0;
    std::uint64_t extra_bytes = 0;  ///< taken beside the state; in chunks, as measured
  };

  Keeper(Options options, Arena arena);
  bool let_in(Channel& channel, bool is_unix);
  void join_ended();
  void serve(Peer& peer);
  void leave(Peer& peer);
  Result<void> answer(Peer& peer, const Message& message);

  Status status() const;
  Intake::Self self();
  Result<std::shared_ptr<const Ucx>> ucx();
  Result<void> answer_ucx(Peer& peer, std::string_view request);
  bool may_read(const Run& run, Memory memory) const;
  bool may_read_now(const Run& run, Memory memory) const;
  Result<void> serve_read(Peer& peer, std::string_view body);
  // keeper_device.cc
  Result<std::string> take_device(Peer& peer, std::string_view body);
  Result<std::string> take_own(Peer& peer, const Message& message);
  Result<void> give_own(Peer& peer, std::string_view body);
  Result<void> give_slab(Peer& peer, std::string_view body);
  GpuMemory gpu_memory();
  Result<void> answer_nccl(Peer& peer, std::string_view request);
  void ask_for_nccl(DeviceHand& hand) const;
  Result<void> make_slabs(DeviceHand& hand, const std::vector<SlabSize>& fresh,
                          const std::set<std::uint64_t>& kept);
  void use(const Held& held);
  void forget_hand(Peer& peer);
  // keeper_programs.cc
  Result<std::string> declare(Peer& peer, std::string_view body);
  Result<std::string> take_stays(Peer& peer, Stays stays);
  Result<std::string> tell_next(Peer& peer);
  Result<std::string> decline(Peer& peer, std::string_view body);
  Result<void> adopt(Peer& peer);
  Result<void> take_quiesced(Peer& peer, std::string_view body);
  Result<std::string> take_profile(const Peer& peer, const std::string& body);
  Peer* waiting_program();
  void hand_over(Peer& program, std::uint64_t step, bool fresh);
  void refuse_waiting(Peer& peer);
  static void tell(Peer& program, std::uint16_t op, std::string answer);
  void settle_programs(bool committed);
  void answer_quiesced(bool committed);
  // keeper_switch.cc
  Result<std::string> wait_ready(std::string_view body);
  Result<std::string> begin(std::string_view body);
  Result<std::string> prepare(Peer& peer, std::string_view body);
  Result<std::uint64_t> stage(Peer& coordinator, std::unique_ptr<Staged> staged, const World& from,
                              const World& to, const std::vector<Move>& moves);
  Result<std::string> quiesce(std::string_view body);
  Result<std::string> move(std::string_view body);
  Result<std::string> commit(std::string_view body);
  // keeper_stop.cc
  Result<std::string> request(std::string_view body);
  Result<std::string> agree(Peer& peer, std::string_view body);
  Result<std::string> conclude(std::string_view body);
  void grant_wish();
  // keeper_memory.cc
  void drop_table(const std::vector<Held>& table);
  void drop_table(const std::vector<Held>& table, std::vector<Pages>& left);
  void free_later(const std::vector<Held>& table);
  void release_torn();
  void wait_for_memory(std::unique_lock<std::mutex>& lock) const;
  void wait_while_held(Options::Hold hold, const std::function<bool()>& is_off) const;
  // keeper_abort.cc
  std::string abort_now(std::string_view body);
  void drop_staged();
  std::unique_ptr<Staged> unstage();
  void spoil_staged();
  // keeper_chunks.cc
  Result<void> check_secure() const;
  Result<std::string> secure();
  Result<Placement> begin_chunk(Staged& staged);
  Result<void> populate_rest(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& fresh,
                             std::vector<std::pair<std::uint64_t, std::uint64_t>> comes) const;
  static Result<void> let_go_before(Staged& staged, DeviceHand* hand);
  Result<void> release_slabs(const Staged& staged, std::uint32_t chunk);
  Result<void> take_slabs(const Staged& staged, std::uint32_t chunk);
  std::uint64_t note_gpu(Staged& staged) const;
  void measure(Staged& staged) const;
  void lose_state();
  // keeper_snapshots.cc
  Result<std::string> set_guard(std::string_view body);
  Result<std::string> take_snapshot(Peer& peer, std::string_view body);
  Result<Snapshot> copy_state(std::uint64_t step, pid_t program, DeviceHand* hand,
                              bool is_of_switch);
  Result<void> send_snapshot(const Snapshot& snapshot, const Endpoint& partner,
                             std::chrono::seconds limit);
  Result<std::string> keep_snapshot(std::string_view body);

  Options options_;
  Store store_;  ///< guarded by mutex_, but for its arena
  const std::shared_ptr<const Arena> arena_;
  std::string tcp_, host_, processes_;
  std::unique_ptr<Door> door_;
  std::thread sender_;   ///< of the last snapshot to the partner
  std::thread freeing_;  ///< of the memory that the last commit gave up

  std::mutex ucx_mutex_;  ///< guards this; taken alone
  std::optional<Error> no_ucx_;

  mutable std::mutex mutex_;  ///< guards all below
  mutable std::condition_variable changed_;
  std::list<std::unique_ptr<Peer>> peers_;
  std::uint64_t epoch_ = 0;
  std::vector<Held> table_;  ///< of the committed epoch
  Peer* program_ = nullptr;  ///< that trains it
  std::string profile_;      ///< that it reported last; empty: none
  bool has_state_ = false, is_torn_ = false;
  std::uint64_t step_ = 0;  ///< of the state, where no program trains
  std::unique_ptr<Staged> staged_;
  std::optional<Next> next_;
  std::optional<Agreed> agreed_;  ///< never beside staged_, nor without a program
  Guard guard_;
  Snapshots snapshots_;
  std::shared_ptr<Channel> to_partner_;
  bool is_freeing_ = false, stopping_ = false;
};

}  // namespace swell::runtime
