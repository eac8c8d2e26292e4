// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>

#include "core/result.h"
#include "runtime/arena.h"
#include "runtime/channel.h"
#include "runtime/verify.h"

namespace swell::runtime {

/// Bytes one after the other both where they come from and where they go: offsets in an arena, or
/// addresses in a program.
struct Run {
  std::uint64_t from = 0, to = 0, bytes = 0;
};

/// Kinds of memory of a tensor: the program's own on the host, the shim's arena, a GPU's that
/// the shim keeps for the programs, or the program's own on its GPU.
enum class Memory : std::uint8_t { program = 0, arena = 1, device = 2, program_device = 3 };
inline constexpr int kMemories = 4;
/// Whether it is reached by way of a program that waits, and has the GPU.
constexpr bool is_on_gpu(Memory memory) noexcept {
  return memory == Memory::device || memory == Memory::program_device;
}
/// Whether the program allocated it: it never stays in place, goes with the process, and counts
/// for no bound.
constexpr bool is_own(Memory memory) noexcept {
  return memory == Memory::program || memory == Memory::program_device;
}

/// Memory that is reached by copies alone. Any thread may call.
class ByteStore {
 public:
  /// Takes the next bytes, in the order of the runs; they are there during the call alone.
  using Take = std::function<Result<void>(std::span<const std::byte>)>;
  /// Makes the next bytes.
  using Give = std::function<Result<void>(std::span<std::byte>)>;
  virtual ~ByteStore() = default;
  /// Reads the runs at their destinations, in large pieces of one run or several: while `take` has
  /// one, the next one is copied.
  virtual Result<void> read(std::span<const Run> runs, const Take& take) = 0;
  /// Writes them there likewise: while `give` makes a piece, the one before is copied.
  virtual Result<void> write(std::span<const Run> runs, const Give& give) = 0;
  /// WordHash's value of the runs at their destinations, made where the memory is. An error: it
  /// cannot be made there.
  virtual Result<std::uint64_t> word_hash(std::span<const Run> runs) = 0;
  virtual Result<void> write(std::uint64_t at, const std::byte* bytes, std::size_t count) = 0;
  virtual Result<void> read(std::uint64_t at, std::byte* bytes, std::size_t count) = 0;
};

/// Where bytes go, or are looked at again: an arena of this process, the memory of a program of
/// this user, or a GPU's.
class Sink {
 public:
  static Sink arena(const Arena& arena) noexcept { return Sink(&arena, 0, nullptr); }
  static Sink program(pid_t pid) noexcept { return Sink(nullptr, pid, nullptr); }
  /// REQUIRES: `device` outlives it.
  static Sink device(ByteStore& device) noexcept { return Sink(nullptr, 0, &device); }
  bool is_device() const noexcept { return device_ != nullptr; }
  /// REQUIRES: is_device().
  ByteStore& device() const noexcept { return *device_; }
  /// The bytes themselves where they can be written directly; nullptr: by write().
  std::byte* direct(std::uint64_t at, std::uint64_t bytes) const noexcept {
    return arena_ != nullptr && arena_->has(at, bytes) ? arena_->data() + at : nullptr;
  }
  Result<void> write(std::uint64_t at, const std::byte* bytes, std::size_t count) const;
  Result<void> read(std::uint64_t at, std::byte* bytes, std::size_t count) const;
  /// Checksum of the runs' bytes at their destinations, in their order.
  Result<std::uint64_t> hash_of(std::span<const Run> runs, Checksum by) const;

 private:
  Sink(const Arena* arena, pid_t pid, ByteStore* device) noexcept
      : arena_(arena), pid_(pid), device_(device) {}
  const Arena* arena_;
  pid_t pid_;
  ByteStore* device_;
};

/// Carries bytes beside a channel between the same two ends, faster than that does. One thread at a
/// time.
class DataLink {
 public:
  virtual ~DataLink() = default;
  /// For events and logs.
  virtual const std::string& name() const noexcept = 0;
  /// Begin to move bytes, in messages that are of the same sizes on both sides; the memory is
  /// neither read nor changed by the caller until flush().
  virtual Result<void> send(std::span<const std::byte> bytes) = 0;
  virtual Result<void> receive(std::span<std::byte> bytes) = 0;
  /// Waits until all of that is done.
  virtual Result<void> flush() = 0;
};

/// A way to get bytes of another rank's state. Each takes no memory beyond kStaging. One thread at
/// a time.
class Transport {
 public:
  static constexpr std::size_t kStaging = std::size_t{1} << 20;
  virtual ~Transport() = default;
  /// For events and logs: "mapped arena", ...
  virtual const char* name() const noexcept = 0;
  static constexpr std::size_t kMostRuns = 100'000;  ///< a request stays below a message's limit
  /// Copies the runs. Returns the checksum of their bytes, in their order, as the source has them;
  /// none: 0. REQUIRES: they are kMostRuns at most.
  virtual Result<std::uint64_t> fetch(std::span<const Run> runs, const Sink& sink, Checksum by) = 0;
  /// How much to ask for at once, where the checksum of the copy is formed after each fetch().
  virtual std::uint64_t piece_bytes() const noexcept { return UINT64_MAX; }
  /// Why it is slower than was asked for, by what fetch() has found out; empty: it is not.
  virtual std::string note() const { return {}; }
  /// Whether the bytes come from another host.
  virtual bool crosses_network() const noexcept { return false; }
  /// Lets go of memory of the source that nothing is read of after a chunk.
  virtual Result<void> let_go(std::uint32_t /*chunk*/) { return {}; }
  /// Whether several threads may fetch() at a time.
  virtual bool is_parallel() const noexcept { return false; }
};

/// From an arena that is mapped here: one copy, no system call.
std::unique_ptr<Transport> from_mapped(std::shared_ptr<const Arena> arena);
/// From the memory of a running program of this user, by process_vm_readv.
std::unique_ptr<Transport> from_program(pid_t pid);
/// Name of the way to a shim of the same node whose socket is not seen: jobs there have no common
/// /tmp.
inline constexpr const char* kTcpWithinNode = "tcp within a node";
/// The same for memory of a program that may not be read from here: it is in another PID namespace,
/// or the kernel lets only its ancestors (Yama).
inline constexpr const char* kTcpToProgram = "tcp within a node, from a program";
/// Name of the way from a GPU of the same node whose memory cannot be mapped: through the host's.
inline constexpr const char* kThroughHost = "through host memory";
/// Suffixes for the name of a way that begins or ends at a GPU.
inline constexpr const char* kFromGpu = ", from a GPU";
inline constexpr const char* kToGpu = ", to a GPU";
/// The same where it is memory that a program allocated there itself.
inline constexpr const char* kFromOwnGpu = ", from own GPU memory";
inline constexpr const char* kToOwnGpu = ", to own GPU memory";
/// From another shim, of another node unless it `is_near`: its arena, or memory that its program
/// reaches. The hash is the sender's.
std::unique_ptr<Transport> from_network(std::shared_ptr<Channel> channel, Memory memory,
                                        bool is_near = false);
/// The same with the bytes on a link of their own; the channel carries what is asked for, and
/// checksums.
std::unique_ptr<Transport> from_link(std::shared_ptr<Channel> channel,
                                     std::unique_ptr<DataLink> link, Memory memory);

/// The other side of from_network(): answers one request for bytes of `source`. An error is the
/// channel's, which is of no use any more; a request that cannot be served, or for a run that is
/// not `allowed`, is answered by a refusal. from_link() is served with the other end of its link.
Result<void> serve_bytes(Channel& channel, std::string_view request, const Sink& source,
                         const std::function<bool(const Run&)>& allowed, DataLink* link = nullptr);
/// Which checksum a request is to be answered with; shims of an earlier version ask for xxHash's.
Checksum wanted_checksum(std::uint8_t said) noexcept;
/// Which memory a request is for.
Memory wanted_memory(std::string_view request) noexcept;

/// Messages between both sides.
inline constexpr std::uint16_t kReadOp = 21, kDoneOp = 100, kRefusedOp = 101;

}  // namespace swell::runtime
