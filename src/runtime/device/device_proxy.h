// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "core/result.h"
#include "runtime/device/device_task.h"
#include "runtime/device/own_share.h"
#include "runtime/device/program_tasks.h"
#include "runtime/state/arena.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/transport.h"

namespace swell::runtime {

/// The memory of a GPU, reached through the program that has it (ProgramTasks). Any thread may
/// call.
class DeviceProxy final : public ByteStore {
 public:
  /// `staging`: offset of two buffers of the arena, kStaging bytes together, which the program maps
  /// too. REQUIRES: `channel` outlives ProgramTasks::lose().
  DeviceProxy(Channel& channel, std::shared_ptr<const Arena> arena, std::uint64_t staging,
              std::string gpu, std::uint64_t granularity);
  static constexpr std::uint64_t kBuffer = std::uint64_t{16} << 20;
  static constexpr std::uint64_t kStaging = 2 * kBuffer;

  const std::string& gpu() const noexcept { return gpu_; }
  std::uint64_t granularity() const noexcept { return granularity_; }
  std::uint64_t staging() const noexcept { return staging_; }

  /// The tasks of the program: whether it accepts any, and its answers.
  ProgramTasks& tasks() noexcept { return tasks_; }

  Result<Descriptor> create(std::uint64_t slab, std::uint64_t bytes);
  Result<void> map(std::uint64_t slab, std::uint64_t bytes, int fd);
  /// Has the program map, as `slab`, memory that another program allocated itself.
  Result<void> map(std::uint64_t slab, const OwnShare& share);
  Result<void> unmap(std::uint64_t slab);
  using Watch = ProgramTasks::Watch;
  /// Has the program do a task of NCCL. Returns the program's report.
  Result<std::string> nccl(const DeviceTask& task, const Watch& watch);
  Result<std::string> nccl(const DeviceTask& task) { return nccl(task, Watch{}); }
  /// Copies within the GPU.
  Result<void> copy(std::vector<Run> runs);
  /// Copies from the GPU to the arena.
  Result<void> to_arena(std::vector<Run> runs);
  Result<std::uint64_t> word_hash(std::span<const Run> runs) override;
  /// Returns why checksums of this GPU's memory are made on the host; empty if the GPU makes them.
  std::string why_not_hashed();
  Result<void> write(std::uint64_t at, const std::byte* bytes, std::size_t count) override;
  Result<void> read(std::uint64_t at, std::byte* bytes, std::size_t count) override;
  Result<void> read(std::span<const Run> runs, const Take& take) override;
  Result<void> write(std::span<const Run> runs, const Give& give) override;

 private:
  std::span<std::byte> buffer(std::uint64_t number) const noexcept;

  ProgramTasks tasks_;
  const std::shared_ptr<const Arena> arena_;
  const std::uint64_t staging_;
  const std::string gpu_;
  const std::uint64_t granularity_;
  Mutex staging_mutex_;  ///< guards the staging memory
  Mutex mutex_;
  std::string why_not_hashed_ SWELL_GUARDED_BY(mutex_);
};

/// Prefix of the names of paths on which bytes never leave GPUs.
inline constexpr const char* kDeviceToDevice = "device to device";
/// Memory of another rank, mapped beside this rank's slabs.
struct MappedMemory {
  std::uint64_t slab = 0;  ///< number of the mapping on this GPU
  std::uint64_t bytes = 0;
  std::uint32_t last_chunk = 0;  ///< the last chunk that reads it
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
  /// Checks after each copy that its source still existed; empty: the source always stays.
  std::function<Result<void>()> is_there = {};
};
/// Copies from memory on a GPU that the program of `proxy` has mapped; `from`: device or
/// program_device.
std::unique_ptr<Transport> from_mapped_gpu(std::shared_ptr<DeviceProxy> proxy, MappedGpu mapped,
                                           Memory from);

/// Copies from memory that the program of `from` allocated itself to that of `to`, on the same GPU.
/// Goes through `slab` (kBounce bytes), which `to` has allocated and both map.
std::unique_ptr<Transport> from_own_memory(std::shared_ptr<DeviceProxy> from,
                                           std::shared_ptr<DeviceProxy> to, std::uint64_t slab,
                                           Descriptor fd);
inline constexpr std::uint64_t kBounce = std::uint64_t{32} << 20;

}  // namespace swell::runtime
