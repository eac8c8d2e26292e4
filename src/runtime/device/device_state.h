// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/device/device_memory.h"
#include "runtime/device/device_task.h"
#include "runtime/device/nccl_state.h"
#include "runtime/state/arena.h"
#include "runtime/state/slabs.h"
#include "runtime/transport/channel.h"

namespace swell::runtime {

/// GPU memory of one session's program: the slabs that it has allocated or mapped, and the memory
/// that it allocated itself and registered. One thread at a time.
class DeviceState {
 public:
  /// Opens GPU `ordinal` like Device::open(), and compiles the kernel of checksums.
  static Result<std::unique_ptr<DeviceState>> open(int ordinal,
                                                   const std::string& library = "libcuda.so.1");
  ~DeviceState() { drop(); }
  const Device& device() const noexcept { return *device_; }
  /// Does the shim's task, and reports the result. The error is the channel's. A message that
  /// arrives meanwhile cancels NCCL's work.
  Result<void> serve(Channel& channel, const Message& message, const Arena& arena);
  /// Drops what was made for the shim with other programs: the shim gives no more tasks.
  void end_service() {
    if (nccl_ != nullptr) nccl_->leave();
  }
  /// Allocates memory that no other process shares, for a session without a shim.
  Result<void> take(std::uint64_t slab, std::uint64_t bytes);
  /// Adds memory that the program allocated itself, which the shim may read and write from now on.
  /// Returns an error if it is not on this GPU.
  Result<void> add_own(DeviceAddress at, std::uint64_t bytes);
  /// Registers the shim's staging memory (part of the arena) with the driver while this object
  /// lives; if that fails, copies through it take longer. REQUIRES: the arena outlives this object.
  void stage_in(std::span<std::byte> staging);
  bool has_own() const noexcept { return !own_.empty(); }
  /// Calls `use` with how other processes map each allocation that has the program's own memory, in
  /// order of addresses. One descriptor is open at a time: expandable segments may have more pieces
  /// than the program may have files. Ends with the first error, also of `use`: one sentence, such
  /// as that a range cannot be mapped, or that there are more than OwnShare::kMost pieces.
  Result<void> each_own_share(const std::function<Result<void>(const OwnShare&)>& use) const;
  /// Frees all memory, or unmaps it if other processes share it.
  void drop();
  /// Returns the address on the GPU. Returns an error if the place is neither in a slab that is
  /// mapped here, nor in the program's own memory.
  Result<DeviceAddress> address(std::uint64_t at, std::uint64_t bytes) const;

 private:
  /// Answer to a task.
  struct Done {
    Descriptor fd = {};
    std::string said = {};
  };
  Result<Done> perform(const DeviceTask& task, const Message& message, const Arena& arena,
                       const NcclState::IsOff& is_off);
  Result<std::string> perform_hash(const DeviceTask& task);
  Result<std::string> perform_nccl(const DeviceTask& task, const NcclState::IsOff& is_off);
  std::shared_ptr<Device> device_;
  std::unique_ptr<Registered> staging_;
  std::unique_ptr<GpuHash> hash_;  ///< nullptr: the driver has not compiled the kernel
  std::map<std::uint64_t, Slab> slabs_;
  std::vector<std::pair<DeviceAddress, std::uint64_t>> own_;  ///< address, bytes
  /// Null if NCCL was not requested; destroyed before the memory.
  std::unique_ptr<NcclState> nccl_;
};

}  // namespace swell::runtime
