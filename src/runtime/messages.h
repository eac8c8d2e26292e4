// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/gpu_memory.h"
#include "runtime/registry.h"
#include "runtime/roster.h"
#include "runtime/verify.h"
#include "runtime/wire.h"
#include "runtime/world.h"

/// Messages between programs, shims and the coordinator: docs/runtime.md, "Messages". Every
/// question is answered by kDoneOp with the body given here, or by kRefusedOp with a sentence.
namespace swell::runtime {

enum class Op : std::uint16_t {
  // A program asks its shim.
  open = 1,              ///< {} -> {arena bytes u64}, and the arena's file descriptor
  declare = 2,           ///< {entries; address 0: in the arena} -> {}
  adopt = 3,             ///< {} -> once the epoch begins: Adopted
  quiesced = 4,          ///< {step u64} -> once it is decided: {1: switched, leave; 0: go on u8}
  profile = 5,           ///< {a rank's profile, of the profiler's form} -> {}
  node_profile = 43,     ///< the same with what shims of an earlier version do not read
  snapshot = 6,          ///< {step u64} -> once the state is copied: {}
  stays = 7,             ///< {} -> {}: it can train on with another plan, in the same process
  stays_if = 29,         ///< {} -> {}: it can where no program of the next epoch is new
  takes_snapshots = 30,  ///< {} -> {}: it takes snapshots, every N steps
  next = 8,      ///< {}, on a connection for the next epoch -> {the variables of its program}
  decline = 35,  ///< {why text[, needed u64, free u64]}, after it was told to prepare: it will not
                 ///< train on there -> {}
  device = 9,    ///< {its GPU text, granularity u64}, before it declares tensors on that -> {}
  own_share = 41,  ///< {OwnShare}, and its descriptor where it has one, after its GPU -> {}
  task_done = 28,  ///< of a DeviceTask: {1: done u8, why not text}, and a descriptor; no answer
  // The coordinator asks a shim.
  status = 10,      ///< {} -> Status
  wait_ready = 11,  ///< {milliseconds u32}: until a program waits in adopt -> {its entries}
  table = 12,       ///< {} -> {what the shim holds: epoch u64, holdings}
  begin = 13,       ///< {epoch u64}: the state is new, made by the program -> {}
  prepare = 14,     ///< Prepare -> Prepared
  quiesce = 15,     ///< {step u64, milliseconds u32} -> {step u64; kNoStep: no program here}
  secure = 31,      ///< {}: in chunks; a snapshot of the step is there and with its partner -> {}
  move = 16,        ///< {}; in chunks: {which one u32}, one after the other -> Moved
  commit = 17,      ///< {epoch u64, step u64} -> {}
  abort = 18,       ///< {}; or {1: the old epoch cannot be gone back to u8} -> {}
  request = 19,     ///< {kStopWish or kCheckpointWish u64}: at its own next boundary -> {}
  agree = 33,  ///< {step u64}: the program is to stand there, without a switch, until conclude,
               ///< request, abort or the end of this connection -> {AgreeAnswer u8, its step u64}
  conclude = 34,      ///< {step u64, kStopWish or kCheckpointWish u64}: what it does there -> {}
  gpu_memory = 40,    ///< {} -> GpuMemory
  last_profile = 22,  ///< {} -> {what the program of this epoch reported last; empty: nothing}
  guard = 23,         ///< Guard -> {}
  snapshots = 24,     ///< {} -> the snapshots that it holds
  // Another shim asks.
  keep = 25,   ///< Kept -> once it is fetched: {}
  arena = 20,  ///< {} -> {arena bytes u64}, and its file descriptor; Unix sockets alone
  own = 42,    ///< {address u64} -> {its GPU text, OwnShare of its program's that has it}, and its
               ///< descriptor where it has one; Unix sockets alone
  slab = 27,  ///< {number u64} -> {its GPU text, bytes u64}, and its descriptor; Unix sockets alone
  read = kReadOp,  ///< runs -> their bytes
  ucx = 26,        ///< {address of UCX} -> {tag u64, address}: then bytes go there; docs/runtime.md
  nccl = 32,       ///< what NcclLink asks of serve_nccl(); docs/runtime.md
};
enum class AgreeAnswer : std::uint8_t {
  stands,      ///< the program has not passed that step yet, and will not
  late,        ///< it has, and goes on
  no_program,  ///< none trains here
  leaves       ///< it is decided already that it leaves: at the step of this answer
};
/// Returns the refusal told to a program that waits for an epoch that does not come.
inline Error called_off() { return Error(ErrorCode::cancelled, "the switch was called off"); }
inline constexpr std::uint64_t kNoStep = UINT64_MAX;

/// How to reach a shim.
struct Endpoint {
  std::string host;  ///< the boot of the machine it runs on: equal on one host
  std::string unix_socket;
  std::string tcp;  ///< "address:port"; empty: it does not listen
  std::int32_t program_pid = 0;
  std::string processes;  ///< which PID namespace the pid is of
};

/// How far a shim is with its move, in bytes.
struct Progress {
  /// Yet to come: what no rank has that stays, and what one has.
  std::uint64_t only_there = 0, rest = 0;
  std::uint64_t come = 0;
};

struct Status {
  std::uint64_t epoch = 0;     ///< that is committed; 0: none
  std::uint64_t prepared = 0;  ///< epoch that is being prepared; 0: none
  bool has_program = false;    ///< one trains the committed epoch
  bool has_waiting = false;    ///< one waits in adopt
  bool is_moved = false;       ///< all of the prepared epoch's state is here
  bool is_quiesced = false;
  bool stays = false;      ///< its program can train with another plan, at least beside others
  std::uint64_t step = 0;  ///< last boundary that the program passed
  Endpoint endpoint;
  Progress progress;  ///< of what is prepared
};

struct OldRank {
  cluster::GpuRef gpu;
  Endpoint endpoint;
  std::uint32_t table = 0;  ///< of Prepare::roster: what it holds
  /// It must be gone by a time: what others have too is fetched from them, and after what only such
  /// ranks have.
  bool leaves = false;
  GpuMemory memory = {};  ///< the slabs alone
};
struct NewRank {
  cluster::GpuRef gpu;
  std::int32_t old_rank = -1;  ///< of the same shim; -1: none
  std::uint32_t table = 0;     ///< of Prepare::roster: what it will hold; places are to be found
  GpuMemory memory = {};       ///< without slabs
};

/// Both plans. All shims are told the same but for the first three.
struct Prepare {
  std::int32_t old_rank = -1, new_rank = -1;  ///< of the shim that is asked; -1: none
  /// State that is no longer needed is released before the commit: docs/runtime.md, "In chunks".
  bool in_chunks = false;
  std::uint64_t epoch = 0;
  std::string cluster;  ///< JSON
  Verify verify = Verify::network;
  std::uint64_t max_extra_bytes = 0;
  Roster roster;
  std::vector<OldRank> from;
  std::vector<NewRank> to;
};
struct Prepared {
  std::uint64_t digest = 0;
  /// Bytes that this shim holds beside its state until the commit; above the bound: nothing is
  /// prepared.
  std::uint64_t extra_bytes = 0;
  std::uint32_t chunks = 0;  ///< 0: all is moved at once
};

/// Bytes by the way they came.
struct PathBytes {
  std::string path;
  std::uint64_t bytes = 0;
};
struct Moved {
  double move_s = 0;
  std::vector<PathBytes> paths;
  std::vector<std::string> notes;  ///< why a way was slower than was asked for
  std::uint64_t extra_bytes = 0;   ///< in chunks: as measured
};

/// One rank's whole state at a step boundary, in the arena of the shim that holds it.
struct Snapshot {
  std::uint64_t epoch = 0, step = 0;
  std::int32_t rank = 0;
  std::uint32_t ranks = 0;  ///< of that epoch
  std::vector<Held> table;
  bool is_of_switch = false;  ///< in chunks, called off maybe before all ranks have one
};
/// A snapshot that the asker holds, to be fetched from there and kept.
struct Kept {
  Snapshot snapshot;
  Endpoint source;
};
/// The rank of a shim's program in an epoch, and the shim that keeps a copy of its snapshots.
struct Guard {
  std::uint64_t epoch = 0;
  std::int32_t rank = 0;
  std::uint32_t ranks = 0;
  Endpoint partner;  ///< without a socket: nobody
};

struct Adopted {
  std::uint64_t epoch = 0, step = 0;
  bool fresh = false;  ///< the program makes the state
  /// By declared entry: in which memory, and where.
  std::vector<std::pair<Memory, std::uint64_t>> places;
};

/// When a program's process is kept for the next epoch.
enum class Stays { no, if_none_is_new, always };
/// Environment variables.
using Variables = std::vector<std::pair<std::string, std::string>>;

std::string write(const Variables& variables);
std::string write(const std::vector<Entry>& entries);
std::string write(std::uint64_t epoch, const std::vector<Held>& table);
std::string write(const Status& status);
/// Writes the part that all shims are told: made once, as it may be tens of MB.
std::string write_common(const Prepare& prepare);
/// The whole message to one shim. `common`: write_common() of the same.
std::string write(const Prepare& prepare, std::string_view common);
std::string write(const Prepare& prepare);
std::string write(const Prepared& prepared);
std::string write(const Moved& moved);
std::string write(const Adopted& adopted);
std::string write(const std::vector<Snapshot>& snapshots);
std::string write(const Kept& kept);
std::string write(const Guard& guard);

/// An error where the body is cut short, too long, or has a number outside of its enumeration.
Result<Variables> read_variables(std::string_view body);
Result<std::vector<Entry>> read_entries(std::string_view body);
Result<std::pair<std::uint64_t, std::vector<Held>>> read_table(std::string_view body);
Result<Status> read_status(std::string_view body);
Result<Prepare> read_prepare(std::string_view body);
Result<Prepared> read_prepared(std::string_view body);
Result<Moved> read_moved(std::string_view body);
Result<Adopted> read_adopted(std::string_view body);
Result<std::vector<Snapshot>> read_snapshots(std::string_view body);
Result<Kept> read_kept(std::string_view body);
Result<Guard> read_guard(std::string_view body);

/// A refusal's body: {why text}, then for ErrorCode::no_memory {needed u64, free u64}, for other
/// codes than `failed` {code u8}. Earlier versions write and read the sentence alone.
std::string write_refusal(const Error& error);
/// Adds what an Error says of memory of a GPU to a message whose last part that is.
Writer& put_shortage(Writer& writer, const std::optional<Shortage>& shortage);
/// The same; nothing where the message ends already.
std::optional<Shortage> get_shortage(Reader& reader);
Error read_refusal(std::string_view body);

/// Sends a question and waits for its answer; a refusal is an error with its sentence.
Result<Message> ask(Channel& channel, Op op, std::string_view body,
                    Deadline deadline = Deadline::max());

}  // namespace swell::runtime
