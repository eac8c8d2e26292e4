// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>

#include "core/result.h"
#include "runtime/state/arena.h"
#include "runtime/transport/channel.h"
#include "runtime/wire/verify.h"

namespace swell::runtime {

/// Bytes that are contiguous at their source and at their destination, which are offsets in an
/// arena or addresses in a program.
struct Run {
  std::uint64_t from = 0, to = 0, bytes = 0;
};

/// Kinds of a tensor's memory: the program's own on the host, the shim's arena, GPU memory that the
/// shim keeps for the programs, or the program's own on its GPU.
enum class Memory : std::uint8_t { program = 0, arena = 1, device = 2, program_device = 3 };
inline constexpr int kMemories = 4;
/// Returns whether the memory is reached through a waiting program, which has the GPU.
constexpr bool is_on_gpu(Memory memory) noexcept {
  return memory == Memory::device || memory == Memory::program_device;
}
/// Returns whether the program allocated the memory: such memory never stays in place, is lost with
/// the process, and does not count towards a bound on memory.
constexpr bool is_own(Memory memory) noexcept {
  return memory == Memory::program || memory == Memory::program_device;
}

/// Memory that can only be reached by copies. Any thread may call.
class ByteStore {
 public:
  /// Takes the next bytes, in the order of the runs; they are valid only during the call.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  /// Fills in the next bytes.
  using Give = std::function<Result<void>(std::span<std::byte>)>;
  virtual ~ByteStore() = default;
  /// Reads the runs at their destinations, in large pieces of one run or several. While `take`
  /// works on one piece, the next one is copied.
  virtual Result<void> read(std::span<const Run> runs, const Take& take) = 0;
  /// Writes the runs at their destinations, likewise. While `give` makes a piece, the previous one
  /// is copied.
  virtual Result<void> write(std::span<const Run> runs, const Give& give) = 0;
  /// Returns WordHash's value of the runs at their destinations, computed where the memory is.
  /// Returns an error if it cannot be computed there.
  virtual Result<std::uint64_t> word_hash(std::span<const Run> runs) = 0;
  virtual Result<void> write(std::uint64_t at, const std::byte* bytes, std::size_t count) = 0;
  virtual Result<void> read(std::uint64_t at, std::byte* bytes, std::size_t count) = 0;
};

/// Destination of bytes, from which they can also be read again: an arena of this process, the
/// memory of a program of this user, or a GPU's memory.
class Sink {
 public:
  static Sink arena(const Arena& arena) noexcept { return Sink(&arena, 0, nullptr); }
  static Sink program(pid_t pid) noexcept { return Sink(nullptr, pid, nullptr); }
  /// REQUIRES: `device` outlives it.
  static Sink device(ByteStore& device) noexcept { return Sink(nullptr, 0, &device); }
  bool is_device() const noexcept { return device_ != nullptr; }
  /// REQUIRES: is_device().
  ByteStore& device() const noexcept { return *device_; }
  /// Returns the memory if it can be written directly; nullptr: use write().
  std::byte* direct(std::uint64_t at, std::uint64_t bytes) const noexcept {
    return arena_ != nullptr && arena_->has(at, bytes) ? arena_->data() + at : nullptr;
  }
  Result<void> write(std::uint64_t at, const std::byte* bytes, std::size_t count) const;
  Result<void> read(std::uint64_t at, std::byte* bytes, std::size_t count) const;
  /// Returns the checksum of the runs' bytes at their destinations, in order of the runs.
  Result<std::uint64_t> hash_of(std::span<const Run> runs, Checksum by) const;

 private:
  Sink(const Arena* arena, pid_t pid, ByteStore* device) noexcept
      : arena_(arena), pid_(pid), device_(device) {}
  const Arena* arena_;
  pid_t pid_;
  ByteStore* device_;
};

/// Carries bytes beside a channel between the same two ends, faster than the channel. One thread at
/// a time.
class DataLink {
 public:
  virtual ~DataLink() = default;
  /// Returns its name for events and logs.
  virtual const std::string& name() const noexcept = 0;
  /// Begins to move bytes, in messages of the same sizes on both sides; until flush() the caller
  /// neither reads nor changes the memory.
  virtual Result<void> send(std::span<const std::byte> bytes) = 0;
  virtual Result<void> receive(std::span<std::byte> bytes) = 0;
  /// Waits until all sends and receives are done.
  virtual Result<void> flush() = 0;
};

/// A path by which bytes of another rank's state are fetched. Takes no memory beyond kStaging. One
/// thread at a time.
class Transport {
 public:
  static constexpr std::size_t kStaging = std::size_t{1} << 20;
  virtual ~Transport() = default;
  /// Returns its name for events and logs: "mapped arena", ...
  virtual const char* name() const noexcept = 0;
  static constexpr std::size_t kMostRuns = 100'000;  ///< a request stays below a message's limit
  /// Copies the runs. Returns the checksum of their bytes at the source, in order of the runs; 0 if
  /// no checksum is requested. REQUIRES: there are at most kMostRuns.
  virtual Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink& sink, Checksum by) = 0;
  /// Returns how many bytes to request at once if the checksum of the copy is computed after each
  /// fetch().
  virtual std::uint64_t piece_bytes() const noexcept { return UINT64_MAX; }
  /// Returns why the path is slower than requested, as far as fetch() has found out; empty: it is
  /// not slower.
  virtual std::string note() const { return {}; }
  /// Returns whether the bytes come from another host.
  virtual bool crosses_network() const noexcept { return false; }
  /// Releases memory of the source that is not read after a chunk.
  virtual Result<void> let_go(std::uint32_t /*chunk*/) { return {}; }
  /// Returns whether several threads may call fetch() at a time.
  virtual bool is_parallel() const noexcept { return false; }
};

/// Copies from an arena that is mapped here: one copy, no system call.
std::unique_ptr<Transport> from_mapped(std::shared_ptr<const Arena> arena);
/// Copies from the memory of a running program of this user, by process_vm_readv.
std::unique_ptr<Transport> from_program(pid_t pid);
/// Name of the path to a shim of the same node whose socket cannot be seen, because the jobs have
/// no common /tmp.
inline constexpr const char* kTcpWithinNode = "tcp within a node";
/// Name of the path to memory of a program that may not be read from here: it is in another PID
/// namespace, or the kernel allows it only to its ancestors (Yama).
inline constexpr const char* kTcpToProgram = "tcp within a node, from a program";
/// Name of the path from a GPU of the same node whose memory cannot be mapped: through host memory.
inline constexpr const char* kThroughHost = "through host memory";
/// Suffixes of the names of paths that begin or end at a GPU.
inline constexpr const char* kFromGpu = ", from a GPU";
inline constexpr const char* kToGpu = ", to a GPU";
/// Suffix if a program allocated that GPU memory itself.
inline constexpr const char* kFromOwnGpu = ", from own GPU memory";
inline constexpr const char* kToOwnGpu = ", to own GPU memory";
/// Copies from another shim (of another node unless it `is_near`): from its arena, or from memory
/// that its program can reach. The checksum is computed by the sender.
std::unique_ptr<Transport> from_network(std::shared_ptr<Channel> channel, Memory memory,
                                        bool is_near = false);
/// Copies from another shim with the bytes on a separate link; the channel carries the requests and
/// the checksums.
std::unique_ptr<Transport> from_link(std::shared_ptr<Channel> channel,
                                     std::unique_ptr<DataLink> link, Memory memory);

/// Serves the other side of from_network(): answers one request for bytes of `source`. An error
/// means that the channel can no longer be used; a request that cannot be served, or that has a run
/// that is not `allowed`, is answered by a refusal. For from_link(), `link` is the other end of its
/// link.
Result<void> serve_bytes(Channel& channel, std::string_view request, const Sink& source,
                         const std::function<bool(const Run&)>& allowed, DataLink* link = nullptr);
/// Returns the checksum with which a request is answered; shims of an earlier version ask for
/// xxHash's.
Checksum wanted_checksum(std::uint8_t said) noexcept;
/// Returns the kind of memory that a request is for.
Memory wanted_memory(std::string_view request) noexcept;

/// Messages between both sides.
inline constexpr std::uint16_t kReadOp = 21, kDoneOp = 100, kRefusedOp = 101;

}  // namespace swell::runtime
