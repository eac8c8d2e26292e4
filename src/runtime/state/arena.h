// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/descriptor.h"
#include "core/result.h"

namespace swell::runtime {

/// Memory of the training state that a shim owns and programs map: a memfd of fixed size, whose
/// pages are allocated at the first write. The death of a process that maps it frees nothing. The
/// file is sealed, so that no holder can shrink it while another uses it (SIGBUS).
class Arena {
 public:
  /// Creates an arena of `bytes`, rounded up to whole pages. The error is the system's.
  static Result<Arena> create(std::uint64_t bytes);
  /// Maps an arena that another process passed. Refuses a file that is not sealed against
  /// shrinking, or whose size is not `bytes`.
  static Result<Arena> map(Descriptor fd, std::uint64_t bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  int fd() const noexcept { return fd_.get(); }
  std::byte* data() const noexcept { return data_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns whether [offset, offset + count) is inside the arena.
  bool has(std::uint64_t offset, std::uint64_t count) const noexcept {
    return offset <= bytes_ && count <= bytes_ - offset;
  }
  /// Gives the whole pages of a range back to the system; they read as 0 afterwards. REQUIRES:
  /// has().
  void release(std::uint64_t offset, std::uint64_t count) const noexcept;
  /// Allocates memory for a range that will be written, and maps it here. Returns an error if the
  /// system has no memory left; without this check a write would end the process. REQUIRES: has().
  Result<void> populate(std::uint64_t offset, std::uint64_t count) const;
  /// Maps a range that will be read. REQUIRES: has().
  void look_ahead(std::uint64_t offset, std::uint64_t count) const noexcept;
  /// Returns the bytes of memory that the arena's pages take now.
  std::uint64_t used_bytes() const noexcept;

 private:
  Arena(Descriptor fd, std::byte* data, std::uint64_t bytes) noexcept
      : fd_(std::move(fd)), data_(data), bytes_(bytes) {}
  Descriptor fd_;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Keeps the free ranges of an arena; allocates whole pages, first fit. Not thread-safe.
class Extents {
 public:
  static constexpr std::uint64_t kPage = 4096;
  explicit Extents(std::uint64_t bytes) { free_[0] = bytes / kPage * kPage; }
  /// Takes a range of `bytes` (above 0) and returns its offset; returns nothing if no gap is large
  /// enough.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  /// Gives a range back. REQUIRES: take() returned it, for the same number of bytes.
  void give(std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t taken_bytes() const noexcept { return taken_; }
  static std::uint64_t rounded(std::uint64_t bytes) noexcept {
    return (bytes + kPage - 1) / kPage * kPage;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  ///< length by offset; no two are adjacent
  std::uint64_t taken_ = 0;
};

}  // namespace swell::runtime
