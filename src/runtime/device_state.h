// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/arena.h"
#include "runtime/channel.h"
#include "runtime/device_memory.h"
#include "runtime/device_task.h"
#include "runtime/slabs.h"

namespace swell::runtime {

/// GPU memory of one session's program: the slabs that it has taken or mapped, and what it has
/// allocated itself and registered. One thread at a time.
class DeviceState {
 public:
  /// As Device::open() does.
  static Result<std::unique_ptr<DeviceState>> open(int ordinal,
                                                   const std::string& library = "libcuda.so.1");
  const Device& device() const noexcept { return *device_; }
  /// Does what the shim asks, and says how it went. The error is the channel's.
  Result<void> serve(Channel& channel, const Message& message, const Arena& arena);
  /// Takes memory that nobody else has, for a session without a shim.
  Result<void> take(std::uint64_t slab, std::uint64_t bytes);
  /// Memory that the program allocated itself, which the shim may have read and written from now
  /// on. An error where it is not on this GPU.
  Result<void> add_own(DeviceAddress at, std::uint64_t bytes);
  bool has_own() const noexcept { return !own_.empty(); }
  /// Gives all memory back, or its part in it.
  void drop() noexcept {
    slabs_.clear();
    own_.clear();
  }
  /// Address on the GPU. An error where the place is neither in a slab that is mapped here, nor in
  /// the program's own memory.
  Result<DeviceAddress> address(std::uint64_t at, std::uint64_t bytes) const;

 private:
  Result<Descriptor> perform(const DeviceTask& task, const Message& message, const Arena& arena);
  std::shared_ptr<Device> device_;
  std::map<std::uint64_t, Slab> slabs_;
  std::vector<std::pair<DeviceAddress, std::uint64_t>> own_;  ///< address, bytes
};

}  // namespace swell::runtime
