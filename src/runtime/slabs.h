// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/descriptor.h"
#include "runtime/gpu_memory.h"

namespace swell::runtime {

/// Where a tensor stands in a rank's GPU memory: slab and offset in one number, or an address in
/// memory that the program allocated itself; so that a part's place plus an offset within the part
/// is a place.
struct DevicePlace {
  static constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;
  static constexpr std::uint64_t own(std::uint64_t address) noexcept { return kOwn | address; }
  static constexpr bool is_own(std::uint64_t at) noexcept { return (at & kOwn) != 0; }
  static constexpr std::uint64_t address(std::uint64_t at) noexcept { return at & ~kOwn; }
  /// REQUIRES of all below: it is not the program's own.
  static constexpr int kOffsetBits = 40;
  static constexpr std::uint64_t of(std::uint64_t slab, std::uint64_t offset) noexcept {
    return slab << kOffsetBits | offset;
  }
  static constexpr std::uint64_t slab(std::uint64_t at) noexcept { return at >> kOffsetBits; }
  static constexpr std::uint64_t offset(std::uint64_t at) noexcept {
    return at & ((std::uint64_t{1} << kOffsetBits) - 1);
  }
};

/// A piece of GPU memory, by its number in one keeper.
struct SlabSize {
  std::uint64_t slab = 0, bytes = 0;
};

/// The GPU memory of a rank as its keeper knows it: descriptors, held without CUDA, and how many
/// tensors stand in each. Programs take the memory and map it. Small tensors share a slab of
/// kSlabBytes; the memory goes back when the last tensor of a slab does. Not thread-safe.
class Slabs {
 public:
  static constexpr std::uint64_t kSlabBytes = std::uint64_t{256} << 20;
  struct Slab {
    std::string gpu;                       ///< whose memory it is: Device::gpu()
    std::uint64_t bytes = 0;               ///< in use, and since seal() as it is taken
    std::shared_ptr<const Descriptor> fd;  ///< nullptr: not taken yet, or given back
    int uses = 0;
  };
  /// A place for a tensor in memory that is still to be taken, in slabs of `slab_bytes` where
  /// several tensors share one.
  std::uint64_t take(const std::string& gpu, std::uint64_t bytes,
                     std::uint64_t slab_bytes = kSlabBytes);
  /// Ends the slabs that take() began; they are what a program has to take, in multiples of
  /// `granularity`.
  std::vector<SlabSize> seal(std::uint64_t granularity);
  /// Sets the memory that a program has taken for it.
  void set(std::uint64_t slab, Descriptor fd);
  /// Gives the memory back while tensors are still counted there.
  void release(std::uint64_t slab);
  /// All that is taken, rising by number.
  std::vector<SlabOf> held() const;
  /// Returns the bytes that are taken on a GPU.
  std::uint64_t held_bytes(const std::string& gpu) const;
  /// nullptr: there is none of that number.
  const Slab* find(std::uint64_t slab) const;
  /// A number for memory of another rank that is mapped beside the own; never one of a slab.
  std::uint64_t next_number() noexcept { return ++last_; }

  /// As Store's.
  void use(std::uint64_t at);
  void drop(std::uint64_t at);
  void sweep();

 private:
  std::map<std::uint64_t, Slab> all_;
  std::vector<std::uint64_t> open_;
  std::uint64_t last_ = 0;
};

}  // namespace swell::runtime
