// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/arena.h"
#include "runtime/control_page.h"
#include "runtime/slabs.h"

namespace swell::runtime {

/// A range of an arena, in whole pages.
struct Pages {
  std::uint64_t at = 0, bytes = 0;
};

/// A keeper's arena, with what is taken of it and how many tensors stand in each page of that:
/// those of two epochs may share some. The first page is the control page. Not thread-safe, but for
/// arena().
class Store {
 public:
  explicit Store(Arena arena);

  const std::shared_ptr<const Arena>& arena() const noexcept { return arena_; }
  /// The GPU memory that it keeps beside.
  Slabs& slabs() noexcept { return slabs_; }
  const Slabs& slabs() const noexcept { return slabs_; }
  ControlPage& page() const noexcept { return *reinterpret_cast<ControlPage*>(arena_->data()); }

  /// Takes a range that no tensor stands in yet. The error says how much is left.
  Result<std::uint64_t> take(std::uint64_t bytes);
  /// Counts a tensor of `bytes` that stands at `at`. REQUIRES: it is in a range that was taken.
  void use(std::uint64_t at, std::uint64_t bytes);
  /// Forgets it; the pages in which no other one stands go back to the system.
  void drop(std::uint64_t at, std::uint64_t bytes);
  /// The same, but those pages are added to `left` and stay taken, until give_back().
  void drop(std::uint64_t at, std::uint64_t bytes, std::vector<Pages>& left);
  /// Gives pages back that were dropped so: to the system, and to be taken again.
  void free(const std::vector<Pages>& left);
  /// The second half of that. REQUIRES: the arena has released them.
  void give_back(const std::vector<Pages>& left);
  /// Gives back what was taken and no tensor stands in.
  void sweep();

 private:
  /// Pages that the same tensors stand in.
  struct Piece {
    std::uint64_t bytes = 0;
    int uses = 0;
  };
  using Taken = std::map<std::uint64_t, Piece>;  ///< by offset
  /// The pieces that make up the pages of a tensor, cut where it begins and ends.
  std::pair<Taken::iterator, Taken::iterator> pieces_of(std::uint64_t at, std::uint64_t bytes);
  Taken::iterator cut(std::uint64_t at);

  std::shared_ptr<const Arena> arena_;
  Slabs slabs_;
  Extents extents_;
  Taken taken_;
};

}  // namespace swell::runtime
