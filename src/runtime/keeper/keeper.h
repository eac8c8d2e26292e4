// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "core/result.h"
#include "runtime/device/own_share.h"
#include "runtime/keeper/chunks.h"
#include "runtime/keeper/committed_state.h"
#include "runtime/plan/migration.h"
#include "runtime/plan/placement.h"
#include "runtime/state/snapshots.h"
#include "runtime/state/store.h"
#include "runtime/transport/door.h"
#include "runtime/transport/fetcher.h"
#include "runtime/transport/ucx_link.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// Keeps one rank's training state over the generations of its programs: owns the arena, tells
/// programs where their tensors stand, fetches what the next generation needs, and commits or
/// aborts the switch. Lives in the shim. Its threads serve programs and other shims of this user
/// over a Unix socket, and those of other nodes over TCP.
///
/// Guarantees: until the commit (in chunks: until the first chunk), the state of the committed
/// generation is neither freed nor written. Until then an abort, or the death of the coordinator or
/// of a program that waits in adopt, leaves that state as it was.
class Keeper {
 public:
  struct Options {
    std::string unix_socket;  ///< path of the socket; the folder is made with mode 0700
    std::string
        tcp_host;      ///< a numeric address to listen on; empty: no connections from other nodes
    std::string key;   ///< the job's key, at least 16 bytes; needed with tcp_host
    std::string host;  ///< identifies its host; empty: the boot id of this machine. Ranks with
                       ///< equal hosts share memory
    std::string processes;          ///< PID namespace; empty: that of this process
    std::uint64_t arena_bytes = 0;  ///< address space: memory is allocated when it is written
    /// Bytes of a slab: GPU memory that several tensors share.
    std::uint64_t slab_bytes = Slabs::kSlabBytes;
    /// Devices of UCX by which state moves instead of TCP; none: do not use UCX.
    std::optional<Ucx::Options> ucx;
    /// How programs move state on GPUs by NCCL; none: do not use NCCL.
    std::optional<NcclOptions> nccl;
    /// Called with each profile that the program reports, by a thread of the keeper; may be empty.
    std::function<void(std::uint64_t generation, std::string profile)> on_profile;
    /// Called each time a program takes over a generation; may be empty, and must not call this
    /// keeper.
    std::function<void(std::uint64_t generation, pid_t program)> on_adopted;
    enum class Hold {
      verified,  ///< a move has compared the checksum of its first block, and has more to fetch
      rest,      ///< a move has fetched all state that no staying rank has, and has more to fetch
      chunk,     ///< a chunk has come, and memory that no shim needs any longer has been released
      freeing,   ///< a commit was answered, and the memory of the last generation is about to be
                 ///< freed
      keeping,   ///< a snapshot of another rank is about to be fetched
    };
    /// Called repeatedly at one of these points, which waits while it returns true, or until
    /// cancelled. For tests; may be empty.
    std::function<bool(Hold)> holds;
  };
  /// Listens, and begins to serve. The error names the missing resource.
  static Result<std::unique_ptr<Keeper>> start(Options options);
  /// Ends all connections and frees the arena; programs that still map it keep their memory.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Asks the training program to prepare for `generation` in its own process: swell_step() returns
  /// SWELL_PREPARE, and `variables` are the program's variables in that generation. Returns false
  /// if no program that can do so trains here; then a new one must be started. `none_is_new`: a
  /// program trains on every worker of the generation already.
  bool offer_next(std::uint64_t generation, Variables variables, bool none_is_new = false);
  /// Cancels the generation that was offered last, as if its program had died.
  void withdraw_next();

  /// Returns the step of the state held here; 0: the state is new, or there is none.
  std::uint64_t step() const { return status().step; }
  /// Returns the seconds since the training program passed the boundary of step(); 0: not known.
  double step_age_s() const;
  const std::string& unix_socket() const noexcept { return options_.unix_socket; }
  /// Returns "address:port"; empty without TCP.
  const std::string& tcp_address() const noexcept { return tcp_; }
  /// Returns the memory that the arena's pages take, after waiting until the last commit's memory
  /// is freed.
  std::uint64_t used_bytes() const;

 private:
  /// One connection and its thread.
  struct Peer {
    Channel channel;
    std::thread thread;
    bool is_unix = false, is_done = false;
    pid_t pid = 0;
    std::vector<Entry> entries;          ///< as declared
    std::shared_ptr<DeviceProxy> proxy;  ///< set if its program has tensors on a GPU
    std::vector<OwnShare> own;      ///< how other programs map its own GPU memory, in any order
    std::unique_ptr<UcxLink> link;  ///< declared after `channel`, which it reads
    std::uint64_t pair = 0;  ///< NCCL's number for the program here and the one there; 0: none yet
    bool has_declared = false, is_waiting = false;
    bool is_quiesced = false, takes_snapshots = false;
    bool leaves = false;      ///< the program has been told to exit
    Stays stays = Stays::no;  ///< whether its process can train with another plan
    /// The generation offered to that process; 0: this is the peer of a new program.
    std::uint64_t next = 0;
    std::optional<Error> declined;  ///< why a new program cannot train here
    std::uint64_t step = 0;
  };
  /// The generation for which a program that stays must prepare.
  struct Next {
    std::uint64_t generation = 0;
    Variables variables;
    std::optional<Error> declined = {};  ///< why the program will not train there
  };
  /// A step at which the program stops without a switch.
  struct Agreed {
    std::uint64_t step = 0, request = 0;  ///< request at that step; 0: not decided yet
    Peer* coordinator = nullptr;          ///< until the request is decided
  };
  struct Staged {
    Prepare prepare;
    Placement placement;
    std::optional<Fetcher> fetcher;  ///< none: the paths are not open yet
    std::uint64_t digest = 0;
    Peer* program = nullptr;  ///< waits in adopt; nullptr: this shim is not in the new plan
    Peer* coordinator = nullptr;
    bool is_busy = false, is_moved = false, is_over = false;
    Progress progress;
    // Used only in chunks.
    std::unique_ptr<Staged> before;  ///< the plan that was prepared to move everything at once
    std::uint32_t chunks = 0, next_chunk = 0;  ///< 0: everything is moved at once
    std::vector<Release> releases;
    bool is_secured = false;
    bool is_old_gone = false;  ///< the old generation cannot be restored
    /// Bytes that the arena took before the first chunk; bytes by which the new state is larger
    /// there than the old one; the larger of both states on the GPU.
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
  Fetcher::Self self();
  Result<std::shared_ptr<const Ucx>> ucx();
  Result<void> answer_ucx(Peer& peer, std::string_view request);
  bool may_read(const Run& run, Memory memory) const;
  bool may_read_now(const Run& run, Memory memory) const SWELL_REQUIRES(mutex_);
  Result<void> serve_read(Peer& peer, std::string_view body);
  // keeper_device.cc
  Result<std::string> take_device(Peer& peer, std::string_view body);
  Result<std::string> take_own(Peer& peer, const Message& message);
  Result<void> give_own(Peer& peer, std::string_view body);
  Result<void> give_slab(Peer& peer, std::string_view body);
  GpuMemory gpu_memory();
  Result<void> answer_nccl(Peer& peer, std::string_view request);
  void ask_for_nccl(DeviceProxy& proxy) const;
  Result<void> make_slabs(DeviceProxy& proxy, const std::vector<SlabSize>& fresh,
                          const std::set<std::uint64_t>& kept) SWELL_EXCLUDES(mutex_);
  void use(const Held& held) SWELL_REQUIRES(mutex_);
  void forget_proxy(Peer& peer);
  // keeper_programs.cc
  Result<std::string> declare(Peer& peer, std::string_view body);
  Result<std::string> take_stays(Peer& peer, Stays stays);
  Result<std::string> tell_next(Peer& peer);
  Result<std::string> decline(Peer& peer, std::string_view body);
  Result<void> adopt(Peer& peer);
  Result<void> take_quiesced(Peer& peer, std::string_view body);
  Result<std::string> take_profile(const Peer& peer, const std::string& body);
  Peer* waiting_program() SWELL_REQUIRES(mutex_);
  void hand_over(Peer& program, std::uint64_t step, bool fresh) SWELL_REQUIRES(mutex_);
  void refuse_waiting(Peer& peer);
  static void tell(Peer& program, std::uint16_t op, std::string answer);
  void settle_programs(bool committed) SWELL_REQUIRES(mutex_);
  void answer_quiesced(bool committed) SWELL_REQUIRES(mutex_);
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
  void carry_out_request() SWELL_REQUIRES(mutex_);
  // keeper_memory.cc
  void drop_table(const std::vector<Held>& table) SWELL_REQUIRES(mutex_);
  void drop_table(const std::vector<Held>& table, std::vector<Pages>& left) SWELL_REQUIRES(mutex_);
  void free_later(const std::vector<Held>& table) SWELL_REQUIRES(mutex_);
  void release_torn() SWELL_REQUIRES(mutex_);
  void wait_for_memory(Lock& lock) const SWELL_REQUIRES(mutex_);
  void wait_while_held(Options::Hold hold, const std::function<bool()>& is_off) const;
  // keeper_abort.cc
  std::string abort_now(std::string_view body);
  void drop_staged() SWELL_REQUIRES(mutex_);
  std::unique_ptr<Staged> unstage() SWELL_REQUIRES(mutex_);
  void spoil_staged() SWELL_REQUIRES(mutex_);
  // keeper_chunks.cc
  Result<void> check_secure() const SWELL_REQUIRES(mutex_);
  Result<std::string> secure();
  Result<Placement> begin_chunk(Staged& staged);
  Result<void> populate_rest(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& fresh,
                             std::vector<std::pair<std::uint64_t, std::uint64_t>> comes) const;
  static Result<void> let_go_before(Staged& staged, DeviceProxy* proxy);
  Result<void> release_slabs(const Staged& staged, std::uint32_t chunk);
  Result<void> take_slabs(const Staged& staged, std::uint32_t chunk);
  std::uint64_t note_gpu(Staged& staged) const SWELL_REQUIRES(mutex_);
  void measure(Staged& staged) const;
  void lose_state() SWELL_REQUIRES(mutex_);
  // keeper_snapshots.cc
  Result<std::string> set_guard(std::string_view body);
  Result<std::string> take_snapshot(Peer& peer, std::string_view body);
  Result<Snapshot> copy_state(std::uint64_t step, pid_t program, DeviceProxy* proxy,
                              bool is_of_switch);
  Result<void> send_snapshot(const Snapshot& snapshot, const Endpoint& partner,
                             std::chrono::seconds limit);
  Result<std::string> keep_snapshot(std::string_view body);

  Options options_;
  Store store_ SWELL_GUARDED_BY(mutex_);
  const std::shared_ptr<const Arena> arena_;
  std::string tcp_, host_, processes_;
  std::unique_ptr<Door> door_;
  std::thread sender_;   ///< sends the last snapshot to the partner
  std::thread freeing_;  ///< frees the memory that the last commit gave up

  Mutex ucx_mutex_;  ///< never held with another mutex
  std::optional<Error> no_ucx_ SWELL_GUARDED_BY(ucx_mutex_);

  mutable Mutex mutex_;
  mutable Condition changed_;
  std::list<std::unique_ptr<Peer>> peers_ SWELL_GUARDED_BY(mutex_);
  CommittedState state_ SWELL_GUARDED_BY(mutex_);
  Peer* program_ SWELL_GUARDED_BY(mutex_) = nullptr;  ///< trains the committed generation
  std::unique_ptr<Staged> staged_ SWELL_GUARDED_BY(mutex_);
  std::optional<Next> next_ SWELL_GUARDED_BY(mutex_);
  std::optional<Agreed> agreed_
      SWELL_GUARDED_BY(mutex_);  ///< never set together with staged_, or without a program
  Guard guard_ SWELL_GUARDED_BY(mutex_);
  Snapshots snapshots_ SWELL_GUARDED_BY(mutex_);
  std::shared_ptr<Channel> to_partner_ SWELL_GUARDED_BY(mutex_);
  bool is_freeing_ SWELL_GUARDED_BY(mutex_) = false;
  bool stopping_ SWELL_GUARDED_BY(mutex_) = false;
};

}  // namespace swell::runtime
