// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runtime/wire.h"

namespace swell::runtime {

/// A slab as other ranks know it.
struct SlabOf {
  std::uint64_t slab = 0, bytes = 0;
  std::string gpu;  ///< Device::gpu()
};

/// GPU memory of a shim: where the program that waits takes it, and what the shim holds there.
struct GpuMemory {
  std::string gpu;                ///< Device::gpu(); empty: the program takes none
  std::uint64_t granularity = 0;  ///< memory is taken in multiples of it
  std::uint64_t slab_bytes = 0;   ///< of a slab that several tensors share
  std::vector<SlabOf> slabs;      ///< rising by number
};

/// How large a slab of several tensors is where state comes in chunks: several of them have room in
/// the bound. In multiples of the granularity.
std::uint64_t slab_bytes_in_chunks(const GpuMemory& memory, std::uint64_t bound) noexcept;

/// Whether a tensor stands in the slab that is filled, or begins the next one.
constexpr bool fits_in_slab(std::uint64_t filled, std::uint64_t bytes,
                            std::uint64_t slab_bytes) noexcept {
  return bytes <= slab_bytes && filled <= slab_bytes - bytes;
}

void put(Writer& writer, const GpuMemory& memory);
/// The reader fails where a number is none that a shim says.
GpuMemory get_gpu_memory(Reader& reader);
std::string write(const GpuMemory& memory);
Result<GpuMemory> read_gpu_memory(std::string_view body);

}  // namespace swell::runtime
