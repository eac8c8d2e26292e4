// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/gpu_memory.h"

#include <algorithm>

#include "runtime/state/slabs.h"

namespace swell::runtime {

namespace {

constexpr std::size_t kMaxGpu = 256;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << DevicePlace::kOffsetBits;
/// Upper limit of the numbers that a keeper gives to slabs.
constexpr std::uint64_t kMaxSlab = std::uint64_t{1} << 22;

}  // namespace

std::uint64_t slab_bytes_in_chunks(const GpuMemory& memory, std::uint64_t bound) noexcept {
  const std::uint64_t unit = std::max<std::uint64_t>(memory.granularity, 1);
  return std::min(memory.slab_bytes, std::max(bound / 8 / unit * unit, unit));
}

void put(ByteWriter& writer, const GpuMemory& memory) {
  writer.text(memory.gpu).put(memory.granularity).put(memory.slab_bytes);
  writer.put(static_cast<std::uint32_t>(memory.slabs.size()));
  for (const SlabOf& each : memory.slabs) writer.put(each.slab).put(each.bytes).text(each.gpu);
}

GpuMemory get_gpu_memory(ByteReader& reader) {
  GpuMemory memory;
  memory.gpu = reader.text(kMaxGpu);
  memory.granularity = reader.get<std::uint64_t>();
  memory.slab_bytes = reader.get<std::uint64_t>();
  if (memory.granularity >= kMaxBytes || memory.slab_bytes >= kMaxBytes ||
      memory.gpu.empty() != (memory.granularity == 0))
    reader.fail();
  std::uint64_t last = 0;
  for (auto left = reader.count(20); reader.good() && left > 0; --left) {
    SlabOf slab;
    slab.slab = reader.get<std::uint64_t>();
    slab.bytes = reader.get<std::uint64_t>();
    slab.gpu = reader.text(kMaxGpu);
    if (slab.slab <= last || slab.slab >= kMaxSlab || slab.bytes == 0 || slab.bytes >= kMaxBytes)
      reader.fail();
    last = slab.slab;
    memory.slabs.push_back(std::move(slab));
  }
  return memory;
}

std::string write(const GpuMemory& memory) {
  ByteWriter writer;
  put(writer, memory);
  return writer.take();
}

Result<GpuMemory> read_gpu_memory(std::string_view body) {
  ByteReader reader(body);
  GpuMemory memory = get_gpu_memory(reader);
  if (!reader.done()) return Error("what a shim has of GPUs cannot be read");
  return memory;
}

}  // namespace swell::runtime
