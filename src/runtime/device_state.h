// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/arena.h"
#include "runtime/channel.h"
#include "runtime/device_memory.h"
#include "runtime/device_task.h"
#include "runtime/nccl_state.h"
#include "runtime/slabs.h"

namespace swell::runtime {

/// GPU memory of one session's program: the slabs that it has taken or mapped, and what it has
/// allocated itself and registered. One thread at a time.
class DeviceState {
 public:
  /// As Device::open() does. Has the driver compile the kernel of checksums.
  static Result<std::unique_ptr<DeviceState>> open(int ordinal,
                                                   const std::string& library = "libcuda.so.1");
  ~DeviceState() { drop(); }
  const Device& device() const noexcept { return *device_; }
  /// Does what the shim asks, and says how it went. The error is the channel's. A message over the
  /// channel meanwhile ends NCCL's work.
  Result<void> serve(Channel& channel, const Message& message, const Arena& arena);
  /// The shim asks for nothing any more: ends what was made for it with other programs.
  void end_service() {
    if (nccl_ != nullptr) nccl_->leave();
  }
  /// Takes memory that nobody else has, for a session without a shim.
  Result<void> take(std::uint64_t slab, std::uint64_t bytes);
  /// Memory that the program allocated itself, which the shim may have read and written from now
  /// on. An error where it is not on this GPU.
  Result<void> add_own(DeviceAddress at, std::uint64_t bytes);
  /// The shim's staging memory, of the arena, is registered with the driver as long as this lives;
  /// where it cannot be, copies by way of it take longer. REQUIRES: the arena outlives it.
  void stage_in(std::span<std::byte> staging);
  bool has_own() const noexcept { return !own_.empty(); }
  /// How others map the program's own memory, rising by address. The error is one sentence, where
  /// any of it cannot be mapped, or it is in more than OwnShare::kMost pieces.
  Result<std::vector<OwnShare>> own_shares() const;
  /// Gives all memory back, or its part in it.
  void drop();
  /// Address on the GPU. An error where the place is neither in a slab that is mapped here, nor in
  /// the program's own memory.
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
  std::unique_ptr<GpuHash> hash_;  ///< nullptr: the driver has not compiled its kernel
  std::map<std::uint64_t, Slab> slabs_;
  std::vector<std::pair<DeviceAddress, std::uint64_t>> own_;  ///< address, bytes
  std::unique_ptr<NcclState> nccl_;  ///< nullptr: it was not asked for; ends before the memory
};

}  // namespace swell::runtime
