// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runtime/transport.h"

namespace swell::runtime {

/// What a shim, which has no CUDA, asks the program to do with GPU memory while that waits for an
/// answer of the shim's. Places on the GPU are DevicePlaces, those of the host offsets in the
/// arena.
struct DeviceTask {
  enum class Kind : std::uint8_t {
    create,     ///< take `bytes` as `slab`; the answer passes its descriptor
    map,        ///< map the descriptor that comes along, `bytes`, as `slab`
    copy,       ///< runs on the GPU
    to_host,    ///< runs from the GPU to the arena
    to_device,  ///< runs from the arena to the GPU
    unmap       ///< forget `slab`
  };
  static constexpr int kKinds = 6;
  Kind kind = Kind::create;
  std::uint64_t slab = 0, bytes = 0;
  std::vector<Run> runs;
};
/// A message of this kind is no answer; the program does it, says so by Op::task_done, and waits
/// on.
inline constexpr std::uint16_t kTaskOp = 110;

std::string write(const DeviceTask& task);
Result<DeviceTask> read_task(std::string_view body);

}  // namespace swell::runtime
