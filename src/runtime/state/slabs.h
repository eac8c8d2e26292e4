// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "runtime/device/gpu_memory.h"

namespace swell::runtime {

/// Place of a tensor in a rank's GPU memory, in one number: slab and offset, or an address in
/// memory that the program allocated itself. A part's place plus an offset within the part is a
/// place too.
struct DevicePlace {
  static constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;
  static constexpr std::uint64_t own(std::uint64_t address) noexcept { return kOwn | address; }
  static constexpr bool is_own(std::uint64_t at) noexcept { return (at & kOwn) != 0; }
  static constexpr std::uint64_t address(std::uint64_t at) noexcept { return at & ~kOwn; }
  /// REQUIRES for all functions below: the place is not in the program's own memory.
  static constexpr int kOffsetBits = 40;
  static constexpr std::uint64_t of(std::uint64_t slab, std::uint64_t offset) noexcept {
    return slab << kOffsetBits | offset;
  }
  static constexpr std::uint64_t slab(std::uint64_t at) noexcept { return at >> kOffsetBits; }
  static constexpr std::uint64_t offset(std::uint64_t at) noexcept {
    return at & ((std::uint64_t{1} << kOffsetBits) - 1);
  }
};

/// Size of a piece of GPU memory, which has a number in its keeper.
struct SlabSize {
  std::uint64_t slab = 0, bytes = 0;
};

/// The GPU memory of a rank, as its keeper knows it: descriptors, which the keeper holds without
/// CUDA, and the number of tensors in each slab. Programs allocate the memory and map it. Small
/// tensors share a slab of kSlabBytes; a slab is freed when its last tensor is gone. Not
/// thread-safe.
class Slabs {
 public:
  static constexpr std::uint64_t kSlabBytes = std::uint64_t{256} << 20;
  struct Slab {
    std::string gpu;                       ///< Device::gpu() of the GPU that has the memory
    std::uint64_t bytes = 0;               ///< bytes in use; from seal() on, bytes as allocated
    std::shared_ptr<const Descriptor> fd;  ///< nullptr: not allocated yet, or freed
    int uses = 0;
  };
  /// Takes a place for a tensor in memory that must still be allocated, in slabs of `slab_bytes` if
  /// several tensors share one.
  std::uint64_t take(const std::string& gpu, std::uint64_t bytes,
                     std::uint64_t slab_bytes = kSlabBytes);
  /// Closes the slabs that take() began. Returns them: the memory that a program must allocate, in
  /// multiples of `granularity`.
  std::vector<SlabSize> seal(std::uint64_t granularity);
  /// Sets the descriptor of the memory that a program has allocated for `slab`.
  void set(std::uint64_t slab, Descriptor fd);
  /// Frees the memory of `slab` although tensors are still counted in it.
  void release(std::uint64_t slab);
  /// Returns all allocated slabs, in order of numbers.
  std::vector<SlabOf> held() const;
  /// Returns the bytes allocated on a GPU.
  std::uint64_t held_bytes(const std::string& gpu) const;
  /// Returns the slab; nullptr if there is none of that number.
  const Slab* find(std::uint64_t slab) const;
  /// Returns a number for mapped memory of another rank; it is never the number of a slab.
  std::uint64_t next_number() noexcept { return ++last_; }

  /// Counts a tensor, like Store::use().
  void use(std::uint64_t at);
  void drop(std::uint64_t at);
  void sweep();

 private:
  std::map<std::uint64_t, Slab> all_;
  std::vector<std::uint64_t> open_;
  std::uint64_t last_ = 0;
};

}  // namespace swell::runtime
