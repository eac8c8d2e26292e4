// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_message.h"
#include "runtime/device/gpu_memory.h"
#include "runtime/state/registry.h"
#include "runtime/state/roster.h"
#include "runtime/state/world.h"
#include "runtime/wire/verify.h"

/// Messages between programs, shims and the coordinator: docs/runtime.md, "Messages". Every
/// question is answered by kDoneOp with the body given here, or by kRefusedOp with one sentence.
namespace swell::runtime {

enum class Op : std::uint16_t {
  // A program asks its shim.
  open = 1,      ///< {} -> {arena bytes u64}, and the arena's file descriptor
  declare = 2,   ///< {entries; address 0: in the arena} -> {}
  adopt = 3,     ///< {} -> once the generation begins: Adopted
  quiesced = 4,  ///< {step u64} -> once the switch is decided: {1: switched, exit; 0: go on u8}
  profile = 5,   ///< {a rank's profile, in the profiler's format} -> {}
  node_profile = 43,     ///< like `profile`, with parts that earlier shims cannot read
  snapshot = 6,          ///< {step u64} -> once the state is copied: {}
  stays = 7,             ///< {} -> {}: it can train with another plan in the same process
  stays_if = 29,         ///< {} -> {}: it can do so if no program of the next generation is new
  takes_snapshots = 30,  ///< {} -> {}: it takes snapshots every N steps
  next = 8,      ///< {}, on a connection for the next generation -> {the variables of its program}
  decline = 35,  ///< {why text[, needed u64, free u64]}, after it was told to prepare: it will not
                 ///< train in that generation -> {}
  device = 9,    ///< {its GPU text, granularity u64}, before it declares tensors on that GPU -> {}
  own_share = 41,  ///< {OwnShare}, and its descriptor if it has one, after `device` -> {}
  task_done = 28,  ///< {1: done u8, reason text} of a DeviceTask, and a descriptor; not answered
  // The coordinator asks a shim.
  status = 10,      ///< {} -> Status
  wait_ready = 11,  ///< {milliseconds u32}: until a program waits in adopt -> {its entries}
  table = 12,       ///< {} -> {what the shim holds: generation u64, holdings}
  begin = 13,       ///< {generation u64}: the state is new, made by the program -> {}
  prepare = 14,     ///< Prepare -> Prepared
  quiesce = 15,     ///< {step u64, milliseconds u32} -> {step u64; kNoStep: no program trains here}
  secure = 31,      ///< in chunks, {}: a snapshot of the step is here and at its partner -> {}
  move = 16,        ///< {}; in chunks {number u32}, one chunk after the other -> Moved
  commit = 17,      ///< {generation u64, step u64} -> {}
  abort = 18,       ///< {}, or {1: the old generation cannot be restored u8} -> {}
  request = 19,  ///< {kStopRequest or kCheckpointRequest u64}: at the program's next boundary -> {}
  agree = 33,  ///< {step u64}: the program stops there, without a switch, until conclude, request,
               ///< abort or the end of this connection -> {AgreeAnswer u8, its step u64}
  conclude = 34,    ///< {step u64, kStopRequest or kCheckpointRequest u64}: what to do there -> {}
  gpu_memory = 40,  ///< {} -> GpuMemory
  last_profile = 22,  ///< {} -> {last report of the program of this generation; empty: none}
  guard = 23,         ///< Guard -> {}
  snapshots = 24,     ///< {} -> the snapshots that it holds
  // Another shim asks.
  keep = 25,   ///< Kept -> once the snapshot is fetched: {}
  arena = 20,  ///< {} -> {arena bytes u64}, and its file descriptor; only on Unix sockets
  own = 42,    ///< {address u64} -> {its GPU text, the program's OwnShare at that address}, and its
               ///< descriptor if it has one; only on Unix sockets
  slab = 27,   ///< {number u64} -> {its GPU text, bytes u64} and its descriptor; Unix sockets only
  read = kReadOp,  ///< runs -> their bytes
  ucx = 26,   ///< {address of UCX} -> {tag u64, address}: then bytes move by UCX; docs/runtime.md
  nccl = 32,  ///< request of NcclLink to serve_nccl(); docs/runtime.md
};
enum class AgreeAnswer : std::uint8_t {
  stands,      ///< the program has not passed that step yet, and will stop there
  late,        ///< the program has passed that step, and goes on
  no_program,  ///< no program trains here
  leaves       ///< the program has already been told to exit at the step of this answer
};
/// Returns the refusal for a program that waits for a generation that was cancelled.
inline Error called_off() { return Error(ErrorCode::cancelled, "the switch was called off"); }
inline constexpr std::uint64_t kNoStep = UINT64_MAX;

/// How to reach a shim.
struct Endpoint {
  std::string host;  ///< boot id of its machine: equal for shims on one host
  std::string unix_socket;
  std::string tcp;  ///< "address:port"; empty: it does not listen
  std::int32_t program_pid = 0;
  std::string processes;  ///< PID namespace of the pid
};

/// Progress of a shim's move, in bytes.
struct Progress {
  /// Still to come: state that no staying rank has, and all other state.
  std::uint64_t only_there = 0, rest = 0;
  std::uint64_t come = 0;
};

struct Status {
  std::uint64_t generation = 0;  ///< committed generation; 0: none
  std::uint64_t prepared = 0;    ///< generation being prepared; 0: none
  bool has_program = false;      ///< a program trains the committed generation
  bool has_waiting = false;      ///< a program waits in adopt
  bool is_moved = false;         ///< all state of the prepared generation is here
  bool is_quiesced = false;
  bool stays = false;  ///< its program can train with another plan in its process, at least if no
                       ///< program is new
  std::uint64_t step = 0;  ///< last boundary that the program passed
  Endpoint endpoint;
  Progress progress;  ///< progress of the prepared generation
};

struct OldRank {
  cluster::GpuRef gpu;
  Endpoint endpoint;
  std::uint32_t table = 0;  ///< what it holds, in Prepare::roster
  /// It must exit by a deadline: state that other ranks have too is fetched from them, and state
  /// that only such ranks have comes first.
  bool leaves = false;
  GpuMemory memory = {};  ///< only the slabs
};
struct NewRank {
  cluster::GpuRef gpu;
  std::int32_t old_rank = -1;  ///< old rank of the same shim; -1: none
  std::uint32_t table = 0;  ///< what it will hold, in Prepare::roster; its places are not known yet
  GpuMemory memory = {};    ///< without the slabs
};

/// Both plans. All shims get the same values, except for the first three fields.
struct Prepare {
  std::int32_t old_rank = -1, new_rank = -1;  ///< ranks of the receiving shim; -1: none
  /// State that is no longer needed is released before the commit: docs/runtime.md, "In chunks".
  bool in_chunks = false;
  std::uint64_t generation = 0;
  std::string cluster;  ///< JSON
  Verify verify = Verify::network;
  std::uint64_t max_extra_bytes = 0;
  Roster roster;
  std::vector<OldRank> from;
  std::vector<NewRank> to;
};
struct Prepared {
  std::uint64_t digest = 0;
  /// Bytes that this shim holds beside its state until the commit; above the bound, nothing is
  /// prepared.
  std::uint64_t extra_bytes = 0;
  std::uint32_t chunks = 0;  ///< 0: everything is moved at once
};

/// Bytes by the path on which they came.
struct PathBytes {
  std::string path;
  std::uint64_t bytes = 0;
};
struct Moved {
  double move_s = 0;
  std::vector<PathBytes> paths;
  std::vector<std::string> notes;  ///< why a path was slower than requested
  std::uint64_t extra_bytes = 0;   ///< in chunks: as measured
};

/// One rank's whole state at a step boundary, in the arena of the shim that holds it.
struct Snapshot {
  std::uint64_t generation = 0, step = 0;
  std::int32_t rank = 0;
  std::uint32_t ranks = 0;  ///< number of ranks in that generation
  std::vector<Held> table;
  bool is_of_switch = false;  ///< taken for a switch in chunks, which may have been cancelled
                              ///< before all ranks had one
};
/// A snapshot that the sender of the message holds; the receiver fetches and keeps it.
struct Kept {
  Snapshot snapshot;
  Endpoint source;
};
/// The rank of a shim's program in a generation, and the shim that keeps a copy of its snapshots.
struct Guard {
  std::uint64_t generation = 0;
  std::int32_t rank = 0;
  std::uint32_t ranks = 0;
  Endpoint partner;  ///< no socket: there is no partner
};

struct Adopted {
  std::uint64_t generation = 0, step = 0;
  bool fresh = false;  ///< the program makes the state
  /// By declared entry: its kind of memory, and its place there.
  std::vector<std::pair<Memory, std::uint64_t>> places;
};

/// When a program's process stays for the next generation.
enum class Stays { no, if_none_is_new, always };
/// Environment variables.
using Variables = std::vector<std::pair<std::string, std::string>>;

std::string write(const Variables& variables);
std::string write(const std::vector<Entry>& entries);
std::string write(std::uint64_t generation, const std::vector<Held>& table);
std::string write(const Status& status);
/// Writes the part that is the same for all shims. Call it once: it may have tens of MB.
std::string write_common(const Prepare& prepare);
/// Writes the whole message to one shim. `common`: write_common() of the same plans.
std::string write(const Prepare& prepare, std::string_view common);
std::string write(const Prepare& prepare);
std::string write(const Prepared& prepared);
std::string write(const Moved& moved);
std::string write(const Adopted& adopted);
std::string write(const std::vector<Snapshot>& snapshots);
std::string write(const Kept& kept);
std::string write(const Guard& guard);

/// Returns an error if the body is cut short, too long, or has a number outside of its enumeration.
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

/// Writes a refusal's body: {why text}, then for ErrorCode::no_memory {needed u64, free u64}, for
/// other codes than `failed` {code u8}. Earlier versions write and read only the sentence.
std::string write_refusal(const Error& error);
/// Appends an Error's shortage of GPU memory to a message, as its last part.
ByteWriter& put_shortage(ByteWriter& writer, const std::optional<Shortage>& shortage);
/// Reads what put_shortage() appended; returns nothing if the message ends before that part.
std::optional<Shortage> get_shortage(ByteReader& reader);
Error read_refusal(std::string_view body);

/// Sends a question and waits for its answer; a refusal becomes an error with its sentence.
Result<Message> ask(Channel& channel, Op op, std::string_view body,
                    Deadline deadline = Deadline::max());

}  // namespace swell::runtime
