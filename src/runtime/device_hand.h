// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/arena.h"
#include "runtime/channel.h"
#include "runtime/device_task.h"
#include "runtime/own_share.h"
#include "runtime/transport.h"

namespace swell::runtime {

/// A keeper's hand on a GPU: the program at the other end of a connection does what it is asked
/// while it waits for an answer of the shim's. Any thread may call; one task at a time. A program
/// that goes on with its training gets no task any more, and none is under way then.
class DeviceHand final : public ByteStore {
 public:
  /// `staging`: offset of kStaging bytes of the arena, which the program maps too: two buffers.
  /// REQUIRES: `channel` outlives lose().
  DeviceHand(Channel& channel, std::shared_ptr<const Arena> arena, std::uint64_t staging,
             std::string gpu, std::uint64_t granularity);
  static constexpr std::uint64_t kBuffer = std::uint64_t{16} << 20;
  static constexpr std::uint64_t kStaging = 2 * kBuffer;

  const std::string& gpu() const noexcept { return gpu_; }
  std::uint64_t granularity() const noexcept { return granularity_; }
  std::uint64_t staging() const noexcept { return staging_; }

  /// The program waits from now on. `own`: the calling thread is the one that reads the connection.
  void open(bool own = false);
  /// It is about to be answered. Waits for the task that is under way.
  void close();
  /// The same, and answers it; waits for nothing: where a task is under way, its thread sends the
  /// answer once that is over. Nothing is asked of the program from now on.
  void close(std::uint16_t op, std::string answer);
  /// The connection has ended.
  void lose();
  /// Takes the program's answer to its task; called by the thread that reads the connection.
  void answer(Message message);

  Result<Descriptor> create(std::uint64_t slab, std::uint64_t bytes);
  Result<void> map(std::uint64_t slab, std::uint64_t bytes, int fd);
  /// Maps as `slab` what another program has allocated itself.
  Result<void> map(std::uint64_t slab, const OwnShare& share);
  Result<void> unmap(std::uint64_t slab);
  /// Callbacks for a task of NCCL, which another program takes part in; called by the thread that
  /// waits for it.
  struct Watch {
    std::function<void()> has_begun = {};  ///< told once the program has it to do
    std::function<bool()> is_off = {};     ///< asked again and again: whether it is to be left off
  };
  /// Does a task of NCCL; returns what the program says.
  Result<std::string> nccl(const DeviceTask& task, const Watch& watch);
  Result<std::string> nccl(const DeviceTask& task) { return nccl(task, Watch{}); }
  /// Which NCCL the program has, once the shim has asked it; or why it has none.
  Result<std::string> its_nccl();
  void set_nccl(Result<std::string> its);
  /// Within the GPU.
  Result<void> copy(std::vector<Run> runs);
  /// From the GPU to the arena.
  Result<void> to_arena(std::vector<Run> runs);
  Result<std::uint64_t> word_hash(std::span<const Run> runs) override;
  /// Why checksums of this GPU's memory are made on the host; empty: they are not.
  std::string why_not_hashed();
  Result<void> write(std::uint64_t at, const std::byte* bytes, std::size_t count) override;
  Result<void> read(std::uint64_t at, std::byte* bytes, std::size_t count) override;
  Result<void> read(std::span<const Run> runs, const Take& take) override;
  Result<void> write(std::span<const Run> runs, const Give& give) override;

 private:
  /// Answer of the program.
  struct Done {
    Descriptor fd;
    std::string said;
  };
  Result<Done> run(const DeviceTask& task, int fd = -1, const Watch* watch = nullptr);
  std::span<std::byte> buffer(std::uint64_t number) const noexcept;
  Result<Message> ask(const DeviceTask& task, int fd, const Watch* watch);
  Result<void> may_ask() const;
  Result<Message> wait_for_answer(const Watch* watch);

  Channel& channel_;
  const std::shared_ptr<const Arena> arena_;
  const std::uint64_t staging_;
  const std::string gpu_;
  const std::uint64_t granularity_;
  std::mutex staging_mutex_;  ///< of who uses the staging memory; taken before turn_
  std::mutex turn_;           ///< of a task; taken before mutex_
  std::mutex mutex_;          ///< guards all below
  std::condition_variable changed_;
  bool listens_ = false, is_own_ = false, is_lost_ = false;
  bool is_busy_ = false;  ///< a task is under way
  std::optional<Message> answer_;
  std::optional<Message> after_;  ///< what the program is told once its task is over
  std::string why_not_hashed_;
  Result<std::string> nccl_ = Error("its program was not asked for NCCL");
};

/// Prefix of the names of ways on which bytes never leave GPUs.
inline constexpr const char* kDeviceToDevice = "device to device";
/// Memory of another rank's, as it is mapped beside the own slabs.
struct MappedMemory {
  std::uint64_t slab = 0;  ///< its number here
  std::uint64_t bytes = 0;
  std::uint32_t last_chunk = 0;  ///< that reads it
};
struct MappedGpu {
  using Pieces = std::map<std::uint64_t, MappedMemory>;
  Pieces pieces;  ///< by DevicePlace of the source
  bool is_same_gpu = true;
  /// Returns the piece that has a place of the source; pieces.end(): none.
  Pieces::iterator find(std::uint64_t at) {
    const auto next = pieces.upper_bound(at);
    if (next == pieces.begin()) return pieces.end();
    const auto its = std::prev(next);
    return at - its->first < its->second.bytes ? its : pieces.end();
  }
  /// Checks after each copy that its source was still there; empty: the source always stays.
  std::function<Result<void>()> is_there = {};
};
/// From memory on a GPU that `hand` has mapped; `from`: device or program_device.
std::unique_ptr<Transport> from_mapped_gpu(std::shared_ptr<DeviceHand> hand, MappedGpu mapped,
                                           Memory from);

/// From memory that the program of `from` allocated itself to that of `to`, on the same GPU, by way
/// of a slab of it that both map: `slab`, kBounce bytes, which `to` has taken.
std::unique_ptr<Transport> from_own_memory(std::shared_ptr<DeviceHand> from,
                                           std::shared_ptr<DeviceHand> to, std::uint64_t slab,
                                           Descriptor fd);
inline constexpr std::uint64_t kBounce = std::uint64_t{32} << 20;

}  // namespace swell::runtime
