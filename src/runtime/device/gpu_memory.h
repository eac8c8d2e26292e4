// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_message.h"
#include "core/result.h"

namespace swell::runtime {

/// A slab, as other ranks see it.
struct SlabOf {
  std::uint64_t slab = 0, bytes = 0;
  std::string gpu;  ///< Device::gpu()
};

/// GPU memory of a shim: where the waiting program allocates it, and what the shim holds there.
struct GpuMemory {
  std::string gpu;                ///< Device::gpu(); empty: the program uses no GPU memory
  std::uint64_t granularity = 0;  ///< sizes of allocations are multiples of it
  std::uint64_t slab_bytes = 0;   ///< size of a slab that several tensors share
  std::vector<SlabOf> slabs;      ///< rising by number
};

/// Returns the size of slabs that several tensors share if state comes in chunks: several such
/// slabs fit in the bound. A multiple of the granularity.
std::uint64_t slab_bytes_in_chunks(const GpuMemory& memory, std::uint64_t bound) noexcept;

/// Returns whether the next tensor fits in the slab that is being filled, rather than beginning a
/// new one.
constexpr bool fits_in_slab(std::uint64_t filled, std::uint64_t bytes,
                            std::uint64_t slab_bytes) noexcept {
  return bytes <= slab_bytes && filled <= slab_bytes - bytes;
}

void put(ByteWriter& writer, const GpuMemory& memory);
/// Fails the reader if a number is outside the range that shims use.
GpuMemory get_gpu_memory(ByteReader& reader);
std::string write(const GpuMemory& memory);
Result<GpuMemory> read_gpu_memory(std::string_view body);

}  // namespace swell::runtime
