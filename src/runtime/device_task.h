// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runtime/transport.h"

namespace swell::runtime {

/// A task on GPU memory that a shim, which has no CUDA, gives the program while that waits for an
/// answer of the shim's. Places on the GPU are DevicePlaces, those of the host offsets in the
/// arena.
struct DeviceTask {
  enum class Kind : std::uint8_t {
    /// Take `bytes` as `slab`; the answer passes its descriptor. With any runs, which are ignored,
    /// a refusal ends with what the GPU lacks, where that is the reason.
    create,
    map,        ///< map the descriptor that comes along, `bytes`, as `slab`
    copy,       ///< runs on the GPU
    to_host,    ///< runs from the GPU to the arena
    to_device,  ///< runs from the arena to the GPU
    unmap,      ///< forget `slab`
    // The kinds below are known since there is NCCL; `slab` is the number of a communicator there,
    // `bytes` the time in milliseconds in which something has to happen.
    nccl_open,     ///< open NCCL; the answer says which, and over what it goes
    nccl_id,       ///< the answer has a new communicator's id
    nccl_join,     ///< make the communicator of `id`, as its rank `rank` of two
    nccl_send,     ///< runs from the GPU to the other rank, `from` alone counts
    nccl_receive,  ///< runs to the GPU, `to` alone counts
    cancel,        ///< leave off what is under way; not answered
    /// The answer has the sum of the words of runs, of which `from` alone counts, as 16 hexadecimal
    /// digits; `bytes` is the number of the first word. Older programs refuse it.
    hash,
    map_handle  ///< map what the handle `id` names, `bytes`, as `slab`. Older programs refuse it
  };
  static constexpr int kKinds = 14;
  Kind kind = Kind::create;
  std::uint64_t slab = 0, bytes = 0;
  std::vector<Run> runs = {};
  std::string id = {};
  std::uint8_t rank = 0;
};
/// A message of this kind is no answer; the program does it, says so by Op::task_done, and waits
/// on. The answer of the task stands where a failed task has its reason.
inline constexpr std::uint16_t kTaskOp = 110;

std::string write(const DeviceTask& task);
Result<DeviceTask> read_task(std::string_view body);

}  // namespace swell::runtime
