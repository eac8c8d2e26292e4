// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runtime/transport/transport.h"

namespace swell::runtime {

/// A task on GPU memory. A shim has no CUDA, so it gives the task to the program while the program
/// waits for an answer of the shim. Places on the GPU are DevicePlaces, places on the host are
/// offsets in the arena.
struct DeviceTask {
  enum class Kind : std::uint8_t {
    /// Allocate `bytes` as `slab`; the answer passes its descriptor. If the task has any runs
    /// (which are ignored), a refusal for lack of memory ends with the needed and the free bytes.
    create,
    map,        ///< map the descriptor that was passed, `bytes`, as `slab`
    copy,       ///< runs on the GPU
    to_host,    ///< runs from the GPU to the arena
    to_device,  ///< runs from the arena to the GPU
    unmap,      ///< forget `slab`
    // The kinds below exist since NCCL is supported; in these `slab` is the number of a
    // communicator and `bytes` a time limit in milliseconds.
    nccl_open,     ///< open NCCL; the answer has its version and its network settings
    nccl_id,       ///< the answer has a new communicator's id
    nccl_join,     ///< make the communicator of `id`, as its rank `rank` of two
    nccl_send,     ///< send runs from the GPU to the other rank; only `from` is used
    nccl_receive,  ///< receive runs to the GPU; only `to` is used
    cancel,        ///< cancel the task that is under way; not answered
    /// Sum the words of runs, of which only `from` is used; the answer has 16 hexadecimal digits.
    /// `bytes` is the number of the first word. Older programs refuse it.
    hash,
    map_handle  ///< map the memory that the handle `id` names, `bytes`, as `slab`; older programs
                ///< refuse it
  };
  static constexpr int kKinds = 14;
  Kind kind = Kind::create;
  std::uint64_t slab = 0, bytes = 0;
  std::vector<Run> runs = {};
  std::string id = {};
  std::uint8_t rank = 0;
};
/// Kind of a message that is not an answer but a task. The program does it, reports by
/// Op::task_done, and continues to wait. The answer of the task stands in the field in which a
/// failed task has its reason.
inline constexpr std::uint16_t kTaskOp = 110;

std::string write(const DeviceTask& task);
Result<DeviceTask> read_task(std::string_view body);

}  // namespace swell::runtime
